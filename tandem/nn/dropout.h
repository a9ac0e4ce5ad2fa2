// SPDX-License-Identifier: Apache-2.0
// Layers that drop whole channels or samples, and those that preserve mean and variance. All are
// the identity outside training.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// X(layer, function, description)
#define TD_FOR_EACH_DROPOUT(X)                                                                   \
  X(Dropout1d, dropout1d,                                                                        \
    "Zeroes whole channels of x [n, c, l] or [c, l] with probability p, scales the rest by "     \
    "1/(1-p).")                                                                                  \
  X(Dropout2d, dropout2d,                                                                        \
    "Zeroes whole channels of x [n, c, h, w] or [c, h, w] with probability p, scales the rest "  \
    "by 1/(1-p).")                                                                               \
  X(Dropout3d, dropout3d,                                                                        \
    "Zeroes whole channels of x [n, c, d, h, w] or [c, d, h, w] with probability p, scales the " \
    "rest by 1/(1-p).")                                                                          \
  X(AlphaDropout, alpha_dropout,                                                                 \
    "Dropped elements become SELU's lower limit; mean and variance are kept (Klambauer et al. "  \
    "2017).")                                                                                    \
  X(FeatureAlphaDropout, feature_alpha_dropout, "The same for whole channels of [n, c, ...].")

#define X(name, function, text)       \
  /** text */                         \
  class TD_API name : public Module { \
   public:                            \
    explicit name(double p = 0.5);    \
    Tensor forward(Tensor x);         \
    double p;                         \
  };
TD_FOR_EACH_DROPOUT(X)
#undef X

/// Zeroes whole samples (stochastic depth, Huang et al. 2016); for the branch of a residual block.
class TD_API DropPath : public Module {
 public:
  explicit DropPath(double p = 0.0);
  Tensor forward(Tensor x);
  double p;
};
using StochasticDepth = DropPath;

}  // namespace tandem::nn
