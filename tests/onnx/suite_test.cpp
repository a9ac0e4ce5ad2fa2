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

TEST(OnnxSuite, SlowPassesButForWhatIsListed) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string source = root ? root : ".";
  const std::string folder = source + "/build/deps/onnx_suite";
  if (!std::filesystem::exists(folder + "/version"))
    GTEST_SKIP() << "the models are not there (scripts/onnx_suite fetches them)";
  init();
  const std::string whole = read_file(source + "/docs/onnx.md");
  const std::string page = whole.substr(0, whole.find("\n## "));  // where failures stand
  const std::vector<OnnxCase> cases = find_onnx_cases(folder);
  EXPECT_EQ(cases.size(), 1914u);
  EXPECT_EQ(std::count_if(cases.begin(), cases.end(), [](const OnnxCase& c) { return c.light; }),
            9);
  for (const OnnxCase& c : cases) {
    const std::string reason = run_onnx_case(c);
    const bool listed = page.find("| " + c.name + " |") != std::string::npos;
    EXPECT_EQ(reason.empty(), !listed) << c.name << ": " << (reason.empty() ? "passes" : reason);
  }
}

}  // namespace
}  // namespace tandem::onnx
