// SPDX-License-Identifier: Apache-2.0
// The clock of the small benchmarks (tile_bench, fused_bench).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tandem::bench {

/// Seconds that f takes: the best of many short windows, that is, what the machine can do when
/// nothing else runs.
template <class F>
double seconds(F&& f) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int64_t n) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < n; ++i) f();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  int64_t n = 1;
  double best = time(1);
  while (best * static_cast<double>(n) < 3e-4 && n < 1 << 20) {
    n *= 2;
    best = std::min(best, time(n) / static_cast<double>(n));
  }
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < 0.15)
    best = std::min(best, time(n) / static_cast<double>(n));
  return best;
}

}  // namespace tandem::bench
