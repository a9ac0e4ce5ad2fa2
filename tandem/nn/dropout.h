// SPDX-License-Identifier: Apache-2.0
// Layers that drop whole channels or samples, and those that preserve mean and variance. All are
// the identity outside training.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// X(layer, rank of a batched x, description)
#define TD_FOR_EACH_CHANNEL_DROPOUT(X)         \
  X(Dropout1d, 3, "[n, c, l] or [c, l]")       \
  X(Dropout2d, 4, "[n, c, h, w] or [c, h, w]") \
  X(Dropout3d, 5, "[n, c, d, h, w] or [c, d, h, w]")

#define X(name, rank, text)                                                              \
  /** Zeroes whole channels of x text with probability p, scales the rest by 1/(1-p). */ \
  class TD_API name : public Module {                                                    \
   public:                                                                               \
    explicit name(double p = 0.5);                                                       \
    Tensor forward(Tensor x);                                                            \
    double p;                                                                            \
  };
TD_FOR_EACH_CHANNEL_DROPOUT(X)
#undef X

/// Dropped elements become SELU's lower limit; mean and variance are kept (Klambauer et al. 2017).
class TD_API AlphaDropout : public Module {
 public:
  explicit AlphaDropout(double p = 0.5);
  Tensor forward(Tensor x);
  double p;
};
/// The same for whole channels of [n, c, ...].
class TD_API FeatureAlphaDropout : public Module {
 public:
  explicit FeatureAlphaDropout(double p = 0.5);
  Tensor forward(Tensor x);
  double p;
};
/// Zeroes whole samples (stochastic depth, Huang et al. 2016); for the branch of a residual block.
class TD_API DropPath : public Module {
 public:
  explicit DropPath(double p = 0.0);
  Tensor forward(Tensor x);
  double p;
};
using StochasticDepth = DropPath;

}  // namespace tandem::nn
