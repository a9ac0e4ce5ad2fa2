// SPDX-License-Identifier: Apache-2.0
// The HTML report in a real browser: Debian's chromium, headless. Skipped where it is not installed
// (scripts/setup browser).
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tandem/compile/run/report.h"
#include "tandem/io/image.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "report_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string text_of(const std::filesystem::path& p) {
  std::stringstream s;
  s << std::ifstream(p).rdbuf();
  return s.str();
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Opens the page; returns the document as the browser sees it and its log.
struct Visit {
  std::string dom, log;
  int code;
};
Visit visit(const Folder& f, const std::string& page) {
  const std::string at = f.path.string();
  const std::string command =
      "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--no-first-run --user-data-dir=" +
      at +
      "/profile --hide-scrollbars "
      "--window-size=1200,1600 --enable-logging=stderr --screenshot=" +
      at + "/shot.png --dump-dom file://" + page + " > " + at + "/dom.html 2> " + at + "/log.txt";
  const int status = std::system(command.c_str());
  return {text_of(f.path / "dom.html"), text_of(f.path / "log.txt"),
          WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

bool have_browser() { return std::system("command -v chromium > /dev/null 2>&1") == 0; }

TEST(Browser, ReportOfACompiledStep) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  bench::Conv net;
  optim::AdamW opt(net.parameters(), {});
  auto step = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                      {.memory_limit = 7 << 20});
  step(image({8, 1, 28, 28}), words({8}, 10));
  Folder f;
  const std::string page = (f.path / "report.html").string();
  std::ofstream(page) << html_report(*step.executable(), "A <conv> & its step");
  const Visit v = visit(f, page);
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
  const Tensor shot = io::read_image((f.path / "shot.png").string());
  const std::vector<uint8_t> pixels = shot.contiguous().to_vector<uint8_t>();  // [c, h, w]
  const size_t area = pixels.size() / 3;
  std::set<std::array<uint8_t, 3>> colours;
  for (size_t i = 0; i < area; ++i)
    colours.insert({pixels[i], pixels[area + i], pixels[2 * area + i]});
  EXPECT_GT(colours.size(), 10u);
  if (const char* keep = std::getenv("TANDEM_KEEP_REPORT")) {
    std::filesystem::copy(f.path / "shot.png", keep,
                          std::filesystem::copy_options::overwrite_existing);
  }
}

// The check itself: a page with an error is detected.
TEST(Browser, AConsoleErrorIsSeen) {
  if (!have_browser()) GTEST_SKIP() << "chromium is not installed (scripts/setup browser)";
  Folder f;
  const std::string page = (f.path / "broken.html").string();
  std::ofstream(page) << "<!doctype html><title>x</title><script>no_such_function()</script>";
  const Visit v = visit(f, page);
  EXPECT_NE(v.log.find("CONSOLE"), std::string::npos) << v.log;
}

}  // namespace
}  // namespace tandem
