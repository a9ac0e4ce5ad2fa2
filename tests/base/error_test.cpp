// SPDX-License-Identifier: Apache-2.0
// Texts of errors: which line is the hint, and what is left when another error adds its place.
#include "tandem/base/error.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Error, TheLastLineIsTheHint) {
  const struct {
    const char *text, *message, *hint, *what;
  } kCases[] = {
      {"x is 3", "x is 3", "", "x is 3."},
      {"x is 3\nMake it 4.", "x is 3", "Make it 4.", "x is 3. Make it 4."},
      {"this is\n  a\nthat is\n  b\nMake them one.", "this is\n  a\nthat is\n  b", "Make them one.",
       "this is\n  a\nthat is\n  b. Make them one."},
      {"", "", "", ""},
  };
  for (const auto& c : kCases) {
    const Error e(ErrorKind::Value, c.text);
    EXPECT_EQ(e.message(), c.message);
    EXPECT_EQ(e.hint(), c.hint);
    EXPECT_EQ(e.what(), std::string(c.what));
    EXPECT_EQ(e.text(), c.text);
    // As the rooms above do it: nothing of the inner error is lost.
    const Error outer(e.kind(), "file.yaml line 3: " + e.text());
    EXPECT_EQ(outer.message(), std::string("file.yaml line 3: ") + c.message);
    EXPECT_EQ(outer.hint(), c.hint);
  }
}

}  // namespace
}  // namespace tandem
