// SPDX-License-Identifier: Apache-2.0
// The HTML report in a real browser: Debian's chromium, headless. Skipped where it is not installed
// (scripts/setup browser).
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tandem/compile/run/report.h"
#include "tests/compile/helpers.h"
#include "tests/io/io_helper.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

using namespace test;

TEST(Browser, ReportOfACompiledStep) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  bench::Conv net;
  optim::AdamW opt(net.parameters(), {});
  auto step = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                      {.memory_limit = 7 << 20});
  step(image({8, 1, 28, 28}), words({8}, 10));
  const TempFolder f;
  const std::string page = f / "report.html";
  std::ofstream(page) << html_report(*step.executable(), "A <conv> & its step");
  const Visit v = visit(f.path().string(), page, f / "shot.png", "1200,1600");
  ASSERT_EQ(v.code, 0) << v.log;
  EXPECT_EQ(v.log.find("CONSOLE"), std::string::npos) << v.log;
  EXPECT_NE(v.dom.find("<title>A &lt;conv&gt; &amp; its step</title>"), std::string::npos);
  const Executable& e = *step.executable();
  size_t blocks = 0;
  for (const compiler::Block& b : e.lowered().buffers)
    blocks += b.base == compiler::Base::arena && b.same_as == compiler::kNone &&
              b.first != compiler::kNone && b.bytes > 0;
  EXPECT_GT(blocks, 5u);
  EXPECT_EQ(count(v.dom, "<rect "), blocks);
  EXPECT_GE(count(v.dom, "<tr>"), e.num_steps());
  EXPECT_NE(v.dom.find("Recomputed"), std::string::npos);
  // What is painted: the colours of many blocks, on white.
  EXPECT_GT(colours(f / "shot.png", 1), 10u);
  if (const char* keep = std::getenv("TANDEM_KEEP_REPORT")) {
    std::filesystem::copy(f / "shot.png", keep, std::filesystem::copy_options::overwrite_existing);
  }
}

// The check itself: a page with an error is detected.
TEST(Browser, AConsoleErrorIsSeen) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  const TempFolder f;
  const std::string page = f / "broken.html";
  std::ofstream(page) << "<!doctype html><title>x</title><script>no_such_function()</script>";
  const Visit v = visit(f.path().string(), page, f / "shot.png", "1200,1600");
  EXPECT_NE(v.log.find("CONSOLE"), std::string::npos) << v.log;
}

}  // namespace
}  // namespace tandem
