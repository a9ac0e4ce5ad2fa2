// SPDX-License-Identifier: Apache-2.0
// Why a request is not done: an HTTP status and a text for the client. Thrown inside the room; what
// the library throws becomes one, without paths or lines of source.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

namespace tandem::serve {

struct Refusal {
  int status = 400;
  std::string text;
  std::string allow = "";  ///< of 405: the methods that the path takes
};

/// Throw a Refusal with a formatted text.
template <class... T>
[[noreturn]] void refuse(int status, fmt::format_string<T...> format, T&&... args) {
  throw Refusal{status, fmt::format(format, std::forward<T>(args)...)};
}

/// Beyond HttpOptions::bytes_in_flight.
inline constexpr const char* kHoldsTooMuch = "the server holds as many bytes of requests as it may";
[[noreturn]] inline void refuse_held() { throw Refusal{503, kHoldsTooMuch}; }

/// Of whatever was thrown. Values, shapes and the like are the client's errors; files, memory and
/// the library's own are not, and their texts stay in the log.
Refusal refusal_of(const std::exception_ptr& thrown);

}  // namespace tandem::serve
