// SPDX-License-Identifier: Apache-2.0
// Lets messages and print() format DType, Dim, Shape, Device and Tensor with `{}`: the text is
// their to_string. Included by tensor_impl.h and tensor.h, so nobody needs to include it.
#pragma once

#include <string>

#include "tandem/base/fmt_core.h"
#include "tandem/tensor/device.h"
#include "tandem/tensor/dtype.h"
#include "tandem/tensor/shape.h"

namespace tandem {

inline std::string to_string(Dim d) { return d.to_string(); }
inline std::string to_string(const Shape& s) { return s.to_string(); }

namespace detail {
/// fmt::formatter of a type with to_string; takes no format spec. It calls nothing of libfmt, so
/// that a program that prints a tensor need not link it.
template <class T>
struct ToStringFormatter {
  constexpr auto parse(fmt::format_parse_context& ctx) { return ctx.begin(); }
  auto format(const T& v, fmt::format_context& ctx) const {
    auto out = ctx.out();
    for (const char c : std::string(to_string(v))) *out++ = c;
    return out;
  }
};
}  // namespace detail

}  // namespace tandem

template <>
struct fmt::formatter<tandem::DType> : tandem::detail::ToStringFormatter<tandem::DType> {};
template <>
struct fmt::formatter<tandem::Device> : tandem::detail::ToStringFormatter<tandem::Device> {};
template <>
struct fmt::formatter<tandem::Dim> : tandem::detail::ToStringFormatter<tandem::Dim> {};
template <>
struct fmt::formatter<tandem::Shape> : tandem::detail::ToStringFormatter<tandem::Shape> {};
