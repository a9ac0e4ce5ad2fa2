// SPDX-License-Identifier: Apache-2.0
// Two small nets and their batches.
#pragma once

#include "tests/compile/helpers.h"

namespace tandem::test {

struct Net : nn::Module {
  nn::Linear a{4, 8}, b{8, 3};
  Net() { TD_REGISTER(a, b); }
  Tensor forward(Tensor x) { return b(relu(a(x))); }
};
/// Batch norm and dropout: state, and random numbers.
struct Noisy : nn::Module {
  nn::Linear a{4, 8};
  nn::BatchNorm1d bn{8};
  nn::Dropout drop{0.5};
  nn::Linear b{8, 3};
  Noisy() { TD_REGISTER(a, bn, drop, b); }
  Tensor forward(Tensor x) { return b(drop(relu(bn(a(x))))); }
};

/// [n, 4] random numbers.
inline Tensor batch(int64_t n, uint64_t seed = 1) {
  manual_seed(seed);
  return randn({n, 4});
}
/// 0, 1, 2, 0 ...
inline Tensor labels(int64_t n) { return arange(0, n, 1) % 3; }

}  // namespace tandem::test
