// SPDX-License-Identifier: Apache-2.0
// The library's only exception class, and the checks that throw it. TD_CHECK reports the user's
// errors (what was wanted, what came; after the last '\n' a hint), TD_ASSERT our own. apply() and
// the module scopes add op, layer and line to errors that pass through them.
#pragma once

#include <stdexcept>
#include <string>

#include "tandem/base/export.h"
#include "tandem/base/fmt_core.h"
#include "tandem/base/source_location.h"

namespace tandem {

enum class ErrorKind : unsigned char {
  Shape,
  DType,
  Device,
  Index,
  Value,
  Memory,
  Io,
  Format,
  Unsupported,
  Internal,
};

/// The name of a kind ("Shape", "DType", ...).
TD_API const char* to_string(ErrorKind kind);

/// Everything the library throws. what() reads `op: wanted, came. In layer L, file:line. Hint.`;
/// the parts are also available separately.
class TD_API Error : public std::runtime_error {
 public:
  /// `message` may carry a hint after its last '\n'.
  Error(ErrorKind kind, const std::string& message);
  Error(ErrorKind kind, std::string message, std::string hint, std::string op, SourceLocation loc,
        std::string layer);

  ErrorKind kind() const { return kind_; }
  const std::string& op() const { return op_; }
  const std::string& layer() const { return layer_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  /// Message and hint as the constructor takes them: for an error that adds where it happened.
  std::string text() const { return hint_.empty() ? message_ : message_ + "\n" + hint_; }
  SourceLocation loc() const { return loc_; }

 private:
  ErrorKind kind_;
  std::string message_, hint_, op_, layer_;
  SourceLocation loc_;
};

namespace detail {
[[noreturn]] TD_API TD_COLD void throw_error(ErrorKind kind, fmt::string_view format,
                                             fmt::format_args args);
[[noreturn]] TD_API TD_COLD void throw_assert(const char* text, const char* file, int line);

template <class... T>
[[noreturn]] TD_COLD void fail(ErrorKind kind, fmt::format_string<T...> format, const T&... args) {
  throw_error(kind, format, fmt::make_format_args(args...));
}
}  // namespace detail

/// Throw Error(ErrorKind::Kind) with a formatted message unless `cond` holds.
#define TD_CHECK(cond, Kind, ...)                                                             \
  do {                                                                                        \
    if (TD_UNLIKELY(!(cond))) ::tandem::detail::fail(::tandem::ErrorKind::Kind, __VA_ARGS__); \
  } while (0)

/// Throw Error(ErrorKind::Kind) with a formatted message.
#define TD_FAIL(Kind, ...) ::tandem::detail::fail(::tandem::ErrorKind::Kind, __VA_ARGS__)

/// An invariant of the library itself: throws Internal in all builds.
#define TD_ASSERT(cond)                                                                  \
  do {                                                                                   \
    if (TD_UNLIKELY(!(cond))) ::tandem::detail::throw_assert(#cond, __FILE__, __LINE__); \
  } while (0)

}  // namespace tandem
