// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/progress.h"

#include "tandem/base/clock.h"

#include <fmt/core.h>
#include <unistd.h>

namespace tandem::runs {

namespace {
// Columns of a terminal: bytes that begin a UTF-8 character.
size_t columns(const std::string& line) {
  size_t n = 0;
  for (char c : line) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}
}  // namespace

Progress::Progress(bool quiet)
    : start_(Clock::now()),
      last_(start_ - std::chrono::hours(1)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (width_) fmt::print(stderr, "\r{:{}}\r", "", width_);
}

bool Progress::due() const {
  const double gap = seconds_since(last_);
  return !quiet_ && gap >= (terminal_ ? 0.1 : 10.0);
}

void Progress::show(const std::string& line) {
  if (!due()) return;
  last_ = Clock::now();
  if (!terminal_) {
    fmt::print(stderr, "{}\n", line);
    return;
  }
  fmt::print(stderr, "\r{:<{}}", line, width_);
  std::fflush(stderr);
  width_ = columns(line);
}

void Progress::keep(const std::string& line) {
  if (quiet_) return;
  fmt::print(stderr, "{}{:<{}}\n", terminal_ ? "\r" : "", line, width_);
  width_ = 0;
}

double Progress::seconds() const { return seconds_since(start_); }

std::string duration(double seconds) {
  auto s = static_cast<long>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace tandem::runs
