// SPDX-License-Identifier: Apache-2.0
// Time of work on a device.
#pragma once

#include <algorithm>
#include <chrono>

#include "tandem/tensor/device_memory.h"

namespace tandem::bench {

// Seconds of one call: the best of three runs of `n` calls, the host waiting behind each run.
template <class F>
double device_seconds(Device device, int n, F&& f) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 3; ++i) f();
  double best = 1e30;
  for (int run = 0; run < 3; ++run) {
    synchronize(device);
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) f();
    synchronize(device);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / n);
  }
  return best;
}

}  // namespace tandem::bench
