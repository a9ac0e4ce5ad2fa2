// SPDX-License-Identifier: Apache-2.0
// print: writes to standard output. A function object, so that argument-dependent lookup never adds
// fmt's or std's function of that name to the overloads.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "tandem/base/export.h"
#include "tandem/base/fmt_core.h"

namespace tandem {
namespace detail {

/// Write `text` to standard output in one call; never throws.
TD_API void write_stdout(std::string_view text) noexcept;
TD_API void print_formatted(fmt::string_view format, fmt::format_args args);

template <class T>
concept HasToString = requires(const T& x) {
  { to_string(x) } -> std::convertible_to<std::string>;
};

struct Print {
  /// `print("loss {}\n", loss.item<float>())`: format string and arguments as in fmt.
  template <class... T>
  void operator()(fmt::format_string<T...> format, T&&... args) const {
    print_formatted(format, fmt::make_format_args(args...));
  }
  /// `print(x)`: a Tensor, Shape, Graph, Module or anything whose namespace has a `to_string` for
  /// it, and a newline.
  template <class T>
    requires(HasToString<T> && !std::is_convertible_v<const T&, std::string_view>)
  void operator()(const T& x) const { write_stdout(std::string(to_string(x)) + '\n'); }
};

}  // namespace detail

inline constexpr detail::Print print{};

}  // namespace tandem
