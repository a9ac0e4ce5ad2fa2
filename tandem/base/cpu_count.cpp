// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace tandem {

int cpu_count() {
  int n = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    const int allowed = CPU_COUNT(&set);
    n = n > 0 ? std::min(n, allowed) : allowed;
  }
  return std::max(n, 1);
}

}  // namespace tandem
