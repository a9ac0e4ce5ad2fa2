// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/onnx/tensorflow/tfjs_internal.h"
#include "tandem/tensor/strided.h"

namespace tandem::onnx {
namespace {

using io::Json;

/// Reads a group's weights one after the other.
class Group {
 public:
  /// `given`: the files that were read before; a file counts for the budget once, however often it
  /// is named.
  Group(const Json& group, const std::string& folder, const std::string& what,
        std::set<std::string>& given)
      : what_(what) {
    for (const Json& p : keras_entries(group.find("paths"))) {
      const std::string name = io::text_of(&p);
      const Ref<MappedFile> shard = open_external(folder, name, what);
      if (given.insert(std::filesystem::path(name).lexically_normal().string()).second)
        Budget::add_given(shard->size());
      Budget::take(shard->size());
      bytes_ += shard->view();
    }
  }
  ~Group() { Budget::give_back(bytes_.size()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  TfjsWeight next(const Json& spec) {
    Budget::count();
    TfjsWeight w;
    w.name = io::text_of(spec.find("name"));
    const std::string dtype = io::text_of(spec.find("dtype"));
    const io::TfTypeInfo* type = tfjs_type_named(dtype);
    if (!type)
      TD_FAIL(Unsupported, "'{}': the weight '{}' has the type '{}'", what_, w.name, dtype);
    w.type = type->number;
    uint64_t n = 1;
    for (const Json& d : keras_entries(spec.find("shape"))) {
      const int64_t size = d.as_int() ? *d.as_int() : -1;
      if (size < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(size), &n) || n >> 40)
        fail(w, "has an impossible shape");
      w.shape.push_back(size);
    }
    if (w.shape.size() > static_cast<size_t>(kMaxRank)) fail(w, "has too many dimensions");
    if (dtype == "string")
      read_texts(w, n);
    else if (const Json* q = spec.find("quantization"))
      read_codes(w, n, *q);
    else if (type->bytes == 0)
      TD_FAIL(Unsupported, "'{}': the weight '{}' has the type '{}'", what_, w.name, dtype);
    else
      w.bytes = take(w, n * type->bytes);
    return w;
  }

 private:
  [[noreturn]] void fail(const TfjsWeight& w, const std::string& why) const {
    TD_FAIL(Format, "'{}': the weight '{}' {}", what_, w.name, why);
  }

  std::string take(const TfjsWeight& w, uint64_t size) {
    if (size > bytes_.size() - at_)
      fail(w, fmt::format("needs {} bytes, its files have {} left", size, bytes_.size() - at_));
    std::string out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }

  // Each text after its length, in four bytes.
  void read_texts(TfjsWeight& w, uint64_t n) {
    Budget::take(n * sizeof(std::string));
    Budget::give_back(n * sizeof(std::string));
    for (uint64_t i = 0; i < n; ++i) {
      uint32_t length = 0;
      std::memcpy(&length, take(w, sizeof length).data(), sizeof length);
      w.texts.push_back(take(w, length));
    }
  }

  // Codes times `scale` plus `min`, in double precision as JavaScript has it; halves as they are.
  void read_codes(TfjsWeight& w, uint64_t n, const Json& q) {
    const std::string codes = io::text_of(q.find("dtype"));
    const bool whole = w.type == 3, halves = codes == "float16";
    if ((codes != "uint8" && codes != "uint16" && !halves) || (w.type != 1 && !whole) ||
        (whole && halves))
      TD_FAIL(Unsupported, "'{}': the weight '{}' is quantised to '{}'", what_, w.name, codes);
    const double scale = io::number_of(q.find("scale")), least = io::number_of(q.find("min"));
    if (!halves && !(std::isfinite(scale) && std::isfinite(least)))
      fail(w, "is quantised without 'scale' and 'min'");
    const uint64_t width = codes == "uint8" ? 1 : 2;
    const std::string in = take(w, n * width);
    Budget::take(n * 4);
    Budget::give_back(n * 4);
    w.bytes.resize(n * 4);
    if (halves)
      return tandem::detail::convert_elements(in.data(), DType::f16, w.bytes.data(), DType::f32,
                                              static_cast<int64_t>(n));
    for (uint64_t i = 0; i < n; ++i) {
      uint16_t code = static_cast<uint8_t>(in[i * width]);
      if (width == 2) std::memcpy(&code, in.data() + i * 2, 2);
      const double value = code * scale + least;
      const auto number = static_cast<float>(value);
      // Math.round: halves go up.
      const auto nearest =
          static_cast<int32_t>(std::clamp(std::floor(value + 0.5), -2147483648.0, 2147483647.0));
      if (whole)
        std::memcpy(w.bytes.data() + i * 4, &nearest, 4);
      else
        std::memcpy(w.bytes.data() + i * 4, &number, 4);
    }
  }

  const std::string& what_;
  std::string bytes_;
  uint64_t at_ = 0;
};

}  // namespace

std::vector<TfjsWeight> read_tfjs_weights(const Json& manifest, const std::string& folder,
                                          const std::string& what) {
  std::vector<TfjsWeight> out;
  std::set<std::string> given;
  for (const Json& group : keras_entries(&manifest)) {
    Group g(group, folder, what, given);
    for (const Json& spec : keras_entries(group.find("weights"))) out.push_back(g.next(spec));
  }
  return out;
}

}  // namespace tandem::onnx
