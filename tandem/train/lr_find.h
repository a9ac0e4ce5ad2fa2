// SPDX-License-Identifier: Apache-2.0
// The learning-rate range test (Smith 2017, "Cyclical learning rates"): the rate grows
// exponentially, a batch at each, until the loss diverges; a good rate is where it fell fastest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/train/run_state.h"

namespace tandem::train {

struct LRFindOptions {
  double start = 1e-7, end = 10;
  int64_t steps = 100;
  double stop_at = 4;      ///< ends when the smoothed loss is above this times its best
  double smoothing = 0.9;  ///< share of the running mean; corrected for its start
};
struct LRFindResult {
  std::vector<double> rates, losses;  ///< losses are smoothed
  double suggestion = 0;  ///< where the loss falls fastest by the logarithm of the rate; 0: nowhere
  double lowest = 0;      ///< the rate of the lowest loss; a tenth of it is the careful choice
  bool diverged = false;  ///< ended by `stop_at` or a loss that is not finite
};

/// `update(batch)` makes one update and gives the loss before it. The batches are those of
/// parts.data, from where it stands, over and over. Model, optimizer and all other parts are as
/// before afterwards, also when an error is thrown. Throws Value without data, model or optimizer,
/// or for rates that do not grow.
TD_API LRFindResult lr_find(const RunParts& parts,
                            const std::function<double(const std::vector<Tensor>&)>& update,
                            const LRFindOptions& options = {});

}  // namespace tandem::train
