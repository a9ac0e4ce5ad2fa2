// SPDX-License-Identifier: Apache-2.0
// The normal density of continuous actions, shared by the agents. Not installed.
#pragma once

#include "tandem/ops/ops.h"

namespace tandem::rl {

constexpr double kHalfLogTwoPi = 0.91893853320467274178;  ///< log(2 pi) / 2

/// log of the normal density at mean + z exp(log_std), element by element:
/// -z^2 / 2 - log_std - log(2 pi) / 2.
inline Tensor gaussian_log_density(const Tensor& z, const Tensor& log_std) {
  return z.square() * -0.5 - log_std - kHalfLogTwoPi;
}

}  // namespace tandem::rl
