// SPDX-License-Identifier: Apache-2.0
// Reads config.json: every error is Format and names the file and the key.
#include "tandem/models/model_config.h"

#include <cmath>

#include "tandem/base/error.h"

namespace tandem::models {

ModelConfig ModelConfig::from_file(const FilePath& path) {
  return from_json(read_file(path, size_t{1} << 24), path.str());
}

ModelConfig ModelConfig::from_json(std::string_view text, std::string_view what) {
  ModelConfig c;
  c.what_ = what;
  c.json_ = io::parse_json(text, what, {.depth = 32, .values = size_t{1} << 20});
  if (!c.json_.as_object()) c.fail("must be an object");
  c.model_type_ = c.text("model_type", "");
  if (c.model_type_.empty()) c.fail("has no 'model_type'");
  if (const io::Json* a = c.find("architectures")) {
    if (!a->as_array()) c.fail("'architectures' must be an array");
    if (!a->as_array()->empty()) {
      const io::Json& first = a->as_array()->front();
      if (!first.as_string()) c.fail("'architectures' must contain names");
      c.architecture_ = *first.as_string();
    }
  }
  return c;
}

void ModelConfig::fail(const std::string& reason) const {
  TD_FAIL(Format, "{}: {}", what_, reason);
}

const io::Json* ModelConfig::find(std::string_view key) const {
  const io::Json* v = json_.find(key);
  return v && !v->is_null() ? v : nullptr;
}

int64_t ModelConfig::integer(std::string_view key, int64_t otherwise, int64_t low,
                             int64_t high) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (!v->as_int()) fail(fmt::format("'{}' must be an integer, is {}", key, v->kind()));
  if (*v->as_int() < low || *v->as_int() > high)
    fail(fmt::format("'{}' must lie in [{}, {}], is {}", key, low, high, *v->as_int()));
  return *v->as_int();
}
double ModelConfig::number(std::string_view key, double otherwise) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (v->as_int()) return static_cast<double>(*v->as_int());
  if (!v->as_double() || !std::isfinite(*v->as_double()))
    fail(fmt::format("'{}' must be a number, is {}", key, v->kind()));
  return *v->as_double();
}
bool ModelConfig::flag(std::string_view key, bool otherwise) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (!v->as_bool()) fail(fmt::format("'{}' must be true or false, is {}", key, v->kind()));
  return *v->as_bool();
}
std::string ModelConfig::text(std::string_view key, std::string_view otherwise) const {
  const io::Json* v = find(key);
  if (!v) return std::string(otherwise);
  if (!v->as_string()) fail(fmt::format("'{}' must be a string, is {}", key, v->kind()));
  return *v->as_string();
}
int64_t ModelConfig::first_integer(std::string_view key, int64_t otherwise) const {
  const io::Json* v = find(key);
  if (!v || !v->as_array()) return integer(key, otherwise, 1, 1 << 16);
  const io::Json::Array& a = *v->as_array();
  for (const io::Json& x : a)
    if (!x.as_int() || *x.as_int() != *a[0].as_int() || *x.as_int() < 1 || *x.as_int() > 1 << 16)
      fail(fmt::format("'{}' must be a size, or several equal sizes", key));
  if (a.empty()) fail(fmt::format("'{}' is empty", key));
  return *a[0].as_int();
}
const io::Json* ModelConfig::object(std::string_view key) const {
  const io::Json* v = find(key);
  if (!v) return nullptr;
  if (!v->as_object()) fail(fmt::format("'{}' must be an object, is {}", key, v->kind()));
  return v;
}
int64_t ModelConfig::num_labels() const {
  const io::Json* names = object("id2label");
  if (names && !names->as_object()->empty())
    return static_cast<int64_t>(names->as_object()->size());
  return integer("num_labels", 2);
}
std::vector<int64_t> ModelConfig::tokens(std::string_view key) const {
  std::vector<int64_t> out;
  const io::Json* v = find(key);
  if (!v) return out;
  const auto take = [&](const io::Json& x) {
    if (!x.as_int()) fail(fmt::format("'{}' must be a token id or several", key));
    if (*x.as_int() >= 0) out.push_back(*x.as_int());
  };
  if (v->as_array())
    for (const io::Json& x : *v->as_array()) take(x);
  else
    take(*v);
  return out;
}

}  // namespace tandem::models
