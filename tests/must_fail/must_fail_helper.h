// SPDX-License-Identifier: Apache-2.0
// A case that must fail: the expression, the kind of its error and what the text must contain. The
// driver (must_fail_helper.cpp) also checks that the error names the line of the expression and
// gives a hint.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/tandem.h"

namespace tandem::must_fail {

struct Case {
  const char* name;
  ErrorKind kind;
  const char* texts;  ///< parts of what(), separated by '|'
  std::function<void()> run;
  SourceLocation loc;  ///< of the expression; no file: the error has no line of its own (files)
  bool hint = true;
};
void PrintTo(const Case& c, std::ostream* out);

/// The expression is on the same line as the macro, so that its line is known.
#define FAILS(name, kind, texts, ...)                                           \
  {                                                                             \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, SourceLocation::here() \
  }
/// The same without a hint: what was wanted and what came is enough.
#define FAILS_PLAIN(name, kind, texts, ...)                                            \
  {                                                                                    \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, SourceLocation::here(), false \
  }
/// For a file or another thing outside the program's text.
#define FAILS_ANYWHERE(name, kind, texts, ...)                                   \
  {                                                                              \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, SourceLocation{}, false \
  }

/// Run all cases; each fails separately, by name.
void check(const std::vector<Case>& cases);

}  // namespace tandem::must_fail
