// SPDX-License-Identifier: Apache-2.0
#include "tandem/init.h"

#include <mutex>

#include "tandem/cpu/cpu.h"
#include "tandem/ops/ops.h"

namespace tandem {

void init() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_all_ops();
    register_cpu_backend();
  });
}

}  // namespace tandem
