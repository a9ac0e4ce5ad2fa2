// SPDX-License-Identifier: Apache-2.0
// Shared by tests of quantised networks: batches of one input, and how close results are.
#pragma once

#include "tandem/quant/calibrate.h"

namespace tandem::quant {

/// Batches that `all` holds, which outlives them.
inline Batches batches_of(const std::vector<Tensor>& all) {
  return [&all](const std::function<void(std::span<const Tensor>)>& see) {
    for (const Tensor& x : all) see({&x, 1});
  };
}
/// Signal to error in dB.
inline double decibels(const Tensor& want, const Tensor& got) {
  return sqnr({&want, 1}, {&got, 1});
}

}  // namespace tandem::quant
