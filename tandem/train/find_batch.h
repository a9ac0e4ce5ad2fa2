// SPDX-License-Identifier: Apache-2.0
// Finds the largest and the fastest batch size: sizes are doubled until memory or time runs out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::train {

struct FindBatchOptions {
  int64_t start = 1, largest = 1 << 16;
  int64_t runs = 3;          ///< timed after one that is not; the fastest counts
  double max_seconds = 60;   ///< for all of it
  int64_t memory_limit = 0;  ///< bytes of tensors; 0: four fifths of what the system has free
};
struct BatchFigures {
  int64_t size = 0;
  double seconds = 0;  ///< of one step
  double samples_per_second = 0;
  int64_t peak_bytes = 0;  ///< of tensors
};
struct FindBatchResult {
  std::vector<BatchFigures> tried;
  int64_t largest = 0;  ///< that fitted; 0: none did
  int64_t fastest = 0;  ///< by samples a second
  /// The smallest within 5 % of the fastest: more costs memory and brings nothing.
  int64_t suggestion = 0;
  std::string reason;  ///< why no larger one was tried
};

/// `step(size)` makes one step on a batch of that size; false: there are not that many samples. A
/// Memory error ends the search, and so does
/// a size whose need, guessed from twice that of the last one, does not fit.
TD_API FindBatchResult find_batch(const std::function<bool(int64_t size)>& step,
                                  const FindBatchOptions& options = {});

}  // namespace tandem::train
