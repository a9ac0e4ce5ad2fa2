// SPDX-License-Identifier: Apache-2.0
// One live line on a terminal, a plain line now and then elsewhere. The trainer and the tool write
// with it.
#pragma once

#include <string>
#include <type_traits>

#include "tandem/base/clock.h"
#include "tandem/base/export.h"

namespace tandem::runs {

class TD_API Progress {
 public:
  /// Writes to stderr; `quiet` shows nothing.
  explicit Progress(bool quiet = false);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Show `line`: at most ten times a second on a terminal, every ten seconds otherwise.
  void show(const std::string& line);
  /// The same for a line that costs something to make: `make` is called when it is due.
  template <class F>
    requires std::is_invocable_r_v<std::string, F&>
  void show(F make) {
    if (due()) show(make());
  }
  /// Show `line` now and keep it.
  void keep(const std::string& line);
  double seconds() const;

 private:
  bool due() const;
  Clock::time_point start_, last_;
  bool quiet_, terminal_;
  size_t width_ = 0;
};

/// "1:05" or "12 s".
TD_API std::string duration(double seconds);

}  // namespace tandem::runs
