// SPDX-License-Identifier: Apache-2.0
// ONNX's backend tests (scripts/onnx_suite): every model passes, op by op and compiled, or is
// listed with its reason in docs/onnx.md, and no listed model passes. Models that are not compiled
// at all are listed, too.
#include "tandem/onnx/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tandem/init.h"

namespace tandem::onnx {
namespace {

void run_listed(const std::string& name, const std::string& version, size_t count) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string source = root ? root : ".";
  const std::string folder = source + "/build/deps/" + name;
  if (onnx_suite_version(folder) != version)
    GTEST_SKIP() << "the models are not there (scripts/onnx_suite fetches them)";
  init();
  const std::string whole = read_file(source + "/docs/onnx.md");
  const size_t begin = whole.find("\n## "), end = whole.find("\n## ", begin + 1);
  const size_t next = whole.find("\n## ", end + 1);
  const std::string page = whole.substr(begin, end - begin);  // where failures stand
  const std::string ways = whole.substr(end, next - end);
  const std::vector<OnnxCase> cases = find_onnx_cases(folder);
  EXPECT_EQ(cases.size(), count);
  EXPECT_EQ(std::count_if(cases.begin(), cases.end(), [](const OnnxCase& c) { return c.light; }),
            9);
  for (const OnnxCase& c : cases) {
    const size_t at = page.find("| " + c.name + " |");
    const bool listed =
        at != std::string::npos &&
        page.substr(at, page.find('\n', at) - at).find(version) != std::string::npos;
    for (const bool compiled : {false, true}) {
      const OnnxVerdict v = run_onnx_case(c, compiled);
      EXPECT_EQ(v.passed(), !listed) << c.name << ": " << (v.passed() ? "passes" : v.differs);
      if (!compiled || !v.passed() || v.way != OnnxWay::eager) continue;
      EXPECT_NE(ways.find("| " + c.name + " |"), std::string::npos) << c.name << ": " << v.reason;
    }
  }
}

TEST(OnnxSuite, SlowPassesButForWhatIsListed) { run_listed("onnx_suite", "1.22.0", 1914); }
TEST(OnnxSuite, SlowPassesButForWhatIsListedOfNewer) {
  run_listed("onnx_suite-1.23.2", "1.23.2", 2036);
}

}  // namespace
}  // namespace tandem::onnx
