// SPDX-License-Identifier: Apache-2.0
// Losses as layers: they hold the options and call the function of ops/loss.h.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/loss.h"

namespace tandem::nn {

/// X(layer, function, options)
#define TD_FOR_EACH_LOSS(X)                                                                   \
  X(CrossEntropyLoss, cross_entropy, CrossEntropyOptions)                                     \
  X(NLLLoss, nll_loss, NllLossOptions)                                                        \
  X(MSELoss, mse_loss, LossOptions)                                                           \
  X(L1Loss, l1_loss, LossOptions)                                                             \
  X(SmoothL1Loss, smooth_l1_loss, SmoothL1LossOptions)                                        \
  X(HuberLoss, huber_loss, HuberLossOptions)                                                  \
  X(BCELoss, binary_cross_entropy, BinaryCrossEntropyOptions)                                 \
  X(BCEWithLogitsLoss, binary_cross_entropy_with_logits, BinaryCrossEntropyWithLogitsOptions) \
  X(KLDivLoss, kl_div, KlDivOptions)

#define X(name, function, Options)                                                  \
  /** The loss `function(x, target, options)`. */                                   \
  struct name {                                                                     \
    Options options;                                                                \
    explicit name(Options options = {}) : options(std::move(options)) {}            \
    Tensor operator()(Tensor x, Tensor target, Where where = Where::here()) const { \
      return function(std::move(x), std::move(target), options, where);             \
    }                                                                               \
  };
TD_FOR_EACH_LOSS(X)
#undef X

}  // namespace tandem::nn
