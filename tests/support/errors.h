// SPDX-License-Identifier: Apache-2.0
// Texts in tests: what a text holds, and what a call throws.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// How many times.
inline size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// The message and hint of the Error that `f` throws.
template <class F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

/// The same, which must be of that kind.
template <class F>
std::string thrown(F f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// The same as "Kind: text", whatever is thrown.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  } catch (const std::exception& e) {
    return std::string("other exception: ") + e.what();
  }
  return "no error";
}

}  // namespace tandem
