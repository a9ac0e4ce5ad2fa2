// SPDX-License-Identifier: Apache-2.0
// Numbers of protobuf's repeated fields as the bytes of a tensor.
#include <limits>

#include "tandem/serve/grpc/call_internal.h"

namespace tandem::serve {
namespace {

template <class T>
std::string narrowed(const std::vector<int64_t>& values, const std::string& name) {
  std::string out;
  out.reserve(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto v = static_cast<T>(values[i]);
    if (static_cast<int64_t>(v) != values[i])
      refuse(400, "input '{}': element {} is {}, which the datatype does not hold", name, i,
             values[i]);
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  return out;
}

template <class T>
std::string copied(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

std::string bytes_of(const std::vector<int64_t>& values, DType dtype, const std::string& name) {
  switch (dtype) {
    case DType::i64:
      return copied(values);
    case DType::i32:
      return narrowed<int32_t>(values, name);
    case DType::i16:
      return narrowed<int16_t>(values, name);
    case DType::i8:
      return narrowed<int8_t>(values, name);
    case DType::u8:
      return narrowed<uint8_t>(values, name);
    case DType::b8:
      return narrowed<bool>(values, name);
    case DType::f16:
    case DType::bf16:
      return narrowed<uint16_t>(values, name);  // their bits
    default:
      refuse(400, "input '{}' takes fractions", name);
  }
}
std::string bytes_of(const std::vector<float>& values) { return copied(values); }
std::string bytes_of(const std::vector<double>& values) { return copied(values); }

}  // namespace tandem::serve
