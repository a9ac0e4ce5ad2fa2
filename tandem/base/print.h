// SPDX-License-Identifier: Apache-2.0
// print: writes lines to standard output. A function object, so that argument-dependent lookup
// never adds fmt's or std's function of that name to the overloads.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "tandem/base/export.h"
#include "tandem/base/fmt_core.h"

namespace tandem {
namespace detail {

/// Write `text` to standard output in one call, with a newline if it does not end with one; never
/// throws.
TD_API void write_lines(std::string text) noexcept;
TD_API void print_formatted(fmt::string_view format, fmt::format_args args);

template <class T>
concept HasToString = requires(const T& x) {
  { to_string(x) } -> std::convertible_to<std::string>;
};

struct Print {
  /// `print("loss {}", loss.item<float>())`: format string and arguments as in fmt. Ends the line
  /// if the text does not; for a piece of a line there is fmt::print.
  template <class... T>
  void operator()(fmt::format_string<T...> format, T&&... args) const {
    print_formatted(format, fmt::make_format_args(args...));
  }
  /// `print(x)`: a Tensor, Shape, Graph, Module or anything whose namespace has a `to_string` for
  /// it. Ends the line, too.
  template <class T>
    requires(HasToString<T> && !std::is_convertible_v<const T&, std::string_view>)
  void operator()(const T& x) const { write_lines(std::string(to_string(x))); }
};

}  // namespace detail

inline constexpr detail::Print print{};

}  // namespace tandem
