// SPDX-License-Identifier: Apache-2.0
// Runs cases that must fail and reads their errors.
#include "tests/must_fail/must_fail_helper.h"

#include <cstdlib>
#include <cstring>

namespace tandem::must_fail {

void check(const std::vector<Case>& cases) {
  const bool show = std::getenv("TANDEM_SHOW_ERRORS") != nullptr;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    try {
      c.run();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      std::string what = e.what();
      if (show) std::printf("%-28s %-11s %s\n", c.name, to_string(e.kind()), what.c_str());
      EXPECT_STREQ(to_string(e.kind()), to_string(c.kind)) << what;
      std::string part;
      for (const char* p = c.texts;; ++p) {
        if (*p && *p != '|') {
          part += *p;
          continue;
        }
        EXPECT_NE(what.find(part), std::string::npos) << "'" << part << "' is not in: " << what;
        part.clear();
        if (!*p) break;
      }
      if (c.loc.file) {
        EXPECT_TRUE(e.loc().file && std::strcmp(e.loc().file, c.loc.file) == 0) << what;
        EXPECT_EQ(e.loc().line, c.loc.line) << what;
        std::string line = std::string(c.loc.file) + ":" + std::to_string(c.loc.line);
        EXPECT_NE(what.find(line), std::string::npos) << line << " is not in: " << what;
      }
      if (c.hint) {
        EXPECT_FALSE(e.hint().empty()) << "no hint: " << what;
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "not a tandem::Error: " << e.what();
    }
  }
}

}  // namespace tandem::must_fail
