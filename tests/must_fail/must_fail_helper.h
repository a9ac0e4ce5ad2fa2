// SPDX-License-Identifier: Apache-2.0
// A case that must fail: the expression, the kind of its error and what the text must hold. The
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
  Where where;  ///< of the expression; no file: the error has no line of its own (files)
  bool hint = true;
};
void PrintTo(const Case& c, std::ostream* out);

/// The expression stands on one line with the macro, so that its line is known.
#define FAILS(name, kind, texts, ...)                                  \
  {                                                                    \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, Where::here() \
  }
/// The same without a hint: what was wanted and what came says it all.
#define FAILS_PLAIN(name, kind, texts, ...)                                   \
  {                                                                           \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, Where::here(), false \
  }
/// Of a file or another thing that is not in the program's text.
#define FAILS_ANYWHERE(name, kind, texts, ...)                          \
  {                                                                     \
#name, ErrorKind::kind, texts, [&] { __VA_ARGS__; }, Where{}, false \
  }

/// Run all cases; each is a failure of its own, named.
void check(const std::vector<Case>& cases);

}  // namespace tandem::must_fail
