// SPDX-License-Identifier: Apache-2.0
// Time: a clock that never goes back for durations, and the time of day.
#pragma once

#include <chrono>

namespace tandem {

using Clock = std::chrono::steady_clock;

/// Seconds between `t` and now.
inline double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

/// Seconds since 1970, UTC.
inline double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tandem
