// SPDX-License-Identifier: Apache-2.0
// StateKeeper: what a search does to a run is undone when it ends, by an error too.
#pragma once

#include "tandem/train/run_state.h"

namespace tandem::train {

class StateKeeper {
 public:
  explicit StateKeeper(const RunParts& parts)
      : parts_(parts), before_(snapshot(parts, 0)), training_(parts.model->is_training()) {}
  ~StateKeeper() {
    if (parts_.optimizer) parts_.optimizer->zero_grad();
    for (const auto& [name, o] : parts_.optimizers) o->zero_grad();
    restore(parts_, before_);  // of the same parts: nothing in it can throw
    parts_.model->train(training_);
  }
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

 private:
  RunParts parts_;
  Snapshot before_;
  bool training_;
};

}  // namespace tandem::train
