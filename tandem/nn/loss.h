// SPDX-License-Identifier: Apache-2.0
// Losses as layers: they hold the options and call the function of ops/nn/loss.h.
#pragma once

#include <functional>

#include "tandem/nn/module.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::nn {

/// X(layer, function, options): of input and target
#define TD_FOR_EACH_LOSS(X)                                                                   \
  X(CrossEntropyLoss, cross_entropy, CrossEntropyOptions)                                     \
  X(NLLLoss, nll_loss, NllLossOptions)                                                        \
  X(MSELoss, mse_loss, LossOptions)                                                           \
  X(L1Loss, l1_loss, LossOptions)                                                             \
  X(SmoothL1Loss, smooth_l1_loss, SmoothL1LossOptions)                                        \
  X(HuberLoss, huber_loss, HuberLossOptions)                                                  \
  X(BCELoss, binary_cross_entropy, BinaryCrossEntropyOptions)                                 \
  X(BCEWithLogitsLoss, binary_cross_entropy_with_logits, BinaryCrossEntropyWithLogitsOptions) \
  X(KLDivLoss, kl_div, KlDivOptions)                                                          \
  X(PoissonNLLLoss, poisson_nll_loss, PoissonNllLossOptions)                                  \
  X(HingeEmbeddingLoss, hinge_embedding_loss, HingeEmbeddingLossOptions)                      \
  X(SoftMarginLoss, soft_margin_loss, LossOptions)                                            \
  X(MultiMarginLoss, multi_margin_loss, MultiMarginLossOptions)                               \
  X(MultiLabelMarginLoss, multilabel_margin_loss, LossOptions)                                \
  X(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss, MultiLabelSoftMarginLossOptions)   \
  X(FocalLoss, sigmoid_focal_loss, FocalLossOptions)                                          \
  X(DiceLoss, dice_loss, DiceLossOptions)                                                     \
  X(TverskyLoss, tversky_loss, TverskyLossOptions)                                            \
  X(LogCoshLoss, log_cosh_loss, LossOptions)

/// X(layer, function, options, names): of three tensors
#define TD_FOR_EACH_LOSS_3(X)                                                   \
  X(GaussianNLLLoss, gaussian_nll_loss, GaussianNllLossOptions, x, target, var) \
  X(MarginRankingLoss, margin_ranking_loss, MarginOptions, x1, x2, target)      \
  X(CosineEmbeddingLoss, cosine_embedding_loss, MarginOptions, x1, x2, target)  \
  X(TripletMarginLoss, triplet_margin_loss, TripletMarginLossOptions, anchor, positive, negative)

#define X(name, function, Options)                                         \
  /** The loss `function(x, target, options)`. */                          \
  struct name {                                                            \
    Options options;                                                       \
    explicit name(Options options = {}) : options(std::move(options)) {}   \
    Tensor operator()(Tensor x, Tensor target,                             \
                      SourceLocation loc = SourceLocation::here()) const { \
      return function(std::move(x), std::move(target), options, loc);      \
    }                                                                      \
  };
TD_FOR_EACH_LOSS(X)
#undef X
#define X(name, function, Options, a, b, c)                                    \
  /** The loss `function(a, b, c, options)`. */                                \
  struct name {                                                                \
    Options options;                                                           \
    explicit name(Options options = {}) : options(std::move(options)) {}       \
    Tensor operator()(Tensor a, Tensor b, Tensor c,                            \
                      SourceLocation loc = SourceLocation::here()) const {     \
      return function(std::move(a), std::move(b), std::move(c), options, loc); \
    }                                                                          \
  };
TD_FOR_EACH_LOSS_3(X)
#undef X

/// The loss `triplet_margin_with_distance_loss(anchor, positive, negative, distance, options)`.
struct TripletMarginWithDistanceLoss {
  using Distance = std::function<Tensor(const Tensor&, const Tensor&)>;
  Distance distance_function;  ///< empty: pairwise_distance
  TripletMarginWithDistanceLossOptions options;
  explicit TripletMarginWithDistanceLoss(Distance distance = {},
                                         TripletMarginWithDistanceLossOptions options = {})
      : distance_function(std::move(distance)), options(options) {}
  Tensor operator()(Tensor anchor, Tensor positive, Tensor negative,
                    SourceLocation loc = SourceLocation::here()) const {
    if (!distance_function)
      return triplet_margin_with_distance_loss(std::move(anchor), std::move(positive),
                                               std::move(negative), options, loc);
    return triplet_margin_with_distance_loss(std::move(anchor), std::move(positive),
                                             std::move(negative), distance_function, options, loc);
  }
};

/// The loss `ctc_loss(log_probs, targets, input_lengths, target_lengths, options)`.
struct CTCLoss {
  CtcLossOptions options;
  explicit CTCLoss(CtcLossOptions options = {}) : options(options) {}
  Tensor operator()(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                    SourceLocation loc = SourceLocation::here()) const {
    return ctc_loss(std::move(log_probs), std::move(targets), std::move(input_lengths),
                    std::move(target_lengths), options, loc);
  }
};

}  // namespace tandem::nn
