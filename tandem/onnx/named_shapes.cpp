// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/named_shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::onnx {

std::vector<int64_t> parse_shape(const std::string& text) {
  std::vector<int64_t> out;
  const char *at = text.data(), *end = text.data() + text.size();
  for (bool more = true; more;) {
    int64_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    TD_CHECK(error == std::errc() && n > 0 && (next == end || *next == 'x'), Value,
             "'{}' is not a shape\nWrite it as 1x3x224x224 or x:1x3x224x224.", text);
    out.push_back(n);
    more = next != end;
    at = next + 1;
  }
  return out;
}

std::vector<std::vector<int64_t>> named_shapes(const std::string& text,
                                               const std::vector<std::string>& names) {
  std::vector<std::vector<int64_t>> out(names.size());
  size_t in_order = 0;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t colon = part.rfind(':');
    size_t k = colon == part.npos ? in_order++ : 0;
    if (colon != part.npos && names.size() != 1) {
      const std::string name = part.substr(0, colon);
      k = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      const std::string near = k < names.size() ? "" : nearest_word(name, names);
      TD_CHECK(k < names.size(), Value, "there is no input '{}'\n{}The model has {}.", name,
               near.empty() ? "" : "Did you mean '" + near + "'? ", fmt::join(names, ", "));
    }
    TD_CHECK(k < names.size(), Value, "'{}' gives {} shapes, the model takes {} input{}", text,
             k + 1, names.size(), names.size() == 1 ? "" : "s");
    out[k] = parse_shape(colon == part.npos ? part : part.substr(colon + 1));
  }
  return out;
}

}  // namespace tandem::onnx
