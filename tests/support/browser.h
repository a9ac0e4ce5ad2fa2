// SPDX-License-Identifier: Apache-2.0
// Pages in a real browser: Debian's chromium, headless (scripts/setup browser installs it).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/image.h"

namespace tandem {

inline bool have_browser() { return std::system("command -v chromium > /dev/null 2>&1") == 0; }

/// The document as the browser sees it, its log, and its exit code.
struct Visit {
  std::string dom, log;
  int code = -1;
};
/// Opens the file `page`, or the page of a server ("http://..."), which then has `seconds` of the
/// browser's own time for its scripts. Its image goes to `shot`, what else the browser writes to
/// `folder`.
inline Visit visit(const std::string& folder, const std::string& page, const std::string& shot,
                   const std::string& window = "1240,3600", int seconds = 8) {
  const bool served = page.starts_with("http");
  const std::string command = fmt::format(
      "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--no-first-run --user-data-dir={0}/profile --hide-scrollbars --window-size={3} "
      "--enable-logging=stderr {4} --screenshot={2} --dump-dom '{5}{1}' > {0}/dom.html 2> "
      "{0}/log.txt",
      folder, page, shot, window,
      served ? fmt::format("--virtual-time-budget={}", seconds * 1000) : "",
      served ? "" : "file://");
  const int status = std::system(command.c_str());
  return {read_file(folder + "/dom.html"), read_file(folder + "/log.txt"),
          WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

/// The same for a page that is ready some time after it has loaded, which the browser does not wait
/// for: visits it until its document holds `text`, five times at most.
inline Visit visit_until(const std::string& text, const std::string& folder,
                         const std::string& page, const std::string& shot,
                         const std::string& window) {
  Visit v;
  for (int times = 0; times < 5 && v.dom.find(text) == std::string::npos; ++times)
    v = visit(folder, page, shot, window);
  return v;
}

/// Where images of pages are kept: TANDEM_KEEP_SHOTS, if set, else with the test's other output.
inline std::string shots_folder() {
  const char* keep = std::getenv("TANDEM_KEEP_SHOTS");
  const std::string folder = keep ? keep : ::testing::TempDir() + "tandem-shots";
  make_folders(folder);
  return folder;
}

/// How many colours an image has, of every `step`-th pixel: one for an empty page.
inline size_t colours(const std::string& image, size_t step = 3) {
  const std::vector<uint8_t> p = io::read_image(image).contiguous().to_vector<uint8_t>();
  std::set<std::array<uint8_t, 3>> seen;
  const size_t area = p.size() / 3;  // [c, h, w]
  for (size_t i = 0; i < area; i += step) seen.insert({p[i], p[area + i], p[2 * area + i]});
  return seen.size();
}

}  // namespace tandem
