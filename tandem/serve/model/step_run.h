// SPDX-License-Identifier: Apache-2.0
// What one step of an ensemble took for a request: traces show it below the model's run.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/clock.h"

namespace tandem::serve {

struct StepRun {
  std::string model;
  int64_t version = 0;
  Clock::time_point begin{};
  double queue_seconds = 0;         ///< until an instance was free
  double seconds = 0;               ///< with that
  bool failed = false;              ///< it is the last one
  std::vector<StepRun> steps = {};  ///< of a step that is an ensemble itself
};

}  // namespace tandem::serve
