// SPDX-License-Identifier: Apache-2.0
// What the files of Optimizer share: optimizer.cpp (groups and options), optimizer_step.cpp (one
// step), optimizer_state.cpp (saving and loading). Not installed.
#pragma once

#include <vector>

#include "tandem/graph/context.h"
#include "tandem/ops/view/create.h"

namespace tandem::optim {

/// Options and counts as a tensor [n] of f64 on the host, wherever the parameters are.
inline Tensor numbers_of(const std::vector<double>& v) {
  const DeviceGuard on_host(cpu);
  return tensor(v, {v.size()});
}

}  // namespace tandem::optim
