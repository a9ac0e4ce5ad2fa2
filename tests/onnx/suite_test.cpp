// SPDX-License-Identifier: Apache-2.0
// ONNX's backend tests (scripts/onnx_suite): every model passes or is listed with its reason in
// docs/onnx.md, and no listed model passes.
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
  const std::string page = whole.substr(0, whole.find("\n## "));  // where failures stand
  const std::vector<OnnxCase> cases = find_onnx_cases(folder);
  EXPECT_EQ(cases.size(), count);
  EXPECT_EQ(std::count_if(cases.begin(), cases.end(), [](const OnnxCase& c) { return c.light; }),
            9);
  for (const OnnxCase& c : cases) {
    const std::string reason = run_onnx_case(c);
    const size_t at = page.find("| " + c.name + " |");
    const bool listed =
        at != std::string::npos &&
        page.substr(at, page.find('\n', at) - at).find(version) != std::string::npos;
    EXPECT_EQ(reason.empty(), !listed) << c.name << ": " << (reason.empty() ? "passes" : reason);
  }
}

TEST(OnnxSuite, SlowPassesButForWhatIsListed) { run_listed("onnx_suite", "1.22.0", 1914); }
TEST(OnnxSuite, SlowPassesButForWhatIsListedOfNewer) {
  run_listed("onnx_suite-1.23.2", "1.23.2", 2036);
}

}  // namespace
}  // namespace tandem::onnx
