// SPDX-License-Identifier: Apache-2.0
// What the tests of training share: digits and their loss.
#pragma once

#include "tandem/tandem.h"

namespace tandem::train {

inline Tensor loss_of(Tensor out, Tensor y) { return cross_entropy(out, y); }

/// Shuffled batches of 64 to train on; batches of 128 to test on.
inline data::Pipeline<data::Example> digits(bool train) {
  auto p = data::pipeline(data::Digits({.train = train}), {.seed = 4});
  return train ? p.shuffle().batch(64) : p.batch(128);
}

}  // namespace tandem::train
