// SPDX-License-Identifier: Apache-2.0
// Losses with PyTorch's names, options and defaults. Class losses are rows that check labels
// through the error word; the others are composed of public ops. Under autocast a loss is f32.
#pragma once

#include "tandem/base/function_ref.h"
#include "tandem/graph/op_def.h"

namespace tandem {

/// batchmean is the sum over the first dimension's size (kl_div).
enum class Reduction : uint8_t { mean, sum, none, batchmean };

/// Attributes of softmax_cross_entropy and nll_loss and their *_backward rows.
struct ClassLossAttrs {
  int64_t reduction = 0;  ///< 0 mean, 1 sum, 2 none
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Dim classes = 0;  ///< for nll_loss_backward: size of dimension 1 of its result
  template <class V>
  void fields(V& v) {
    v("reduction", reduction);
    v("ignore_index", ignore_index);
    v("label_smoothing", label_smoothing);
    IntList c{classes};
    v("classes", c);
    classes = c[0];
  }
};

namespace op {
/// softmax_cross_entropy: x [n, c, ...d], target [n, ...d] (integer labels), weight? [c] ->
/// y (0-d, or [n, ...d] with reduction none), lse! [n, ...d], total! 0-d (what mean divides by).
/// Its backward: gy, x, target, lse, total? (reduction mean), weight? -> gx.
/// nll_loss: logp [n, c, ...d], target, weight? -> y, total!. Its backward: gy, target, total?,
/// weight? -> glogp. binary_cross_entropy: elements, no reduction.
extern TD_API const OpDef softmax_cross_entropy, softmax_cross_entropy_backward, nll_loss,
    nll_loss_backward, binary_cross_entropy;
/// log_probs [t, n, c], targets [n, s] (i64), input_lengths [n], target_lengths [n] -> -log p of
/// each target [n] in f64 or f32; states beyond a length are not read. Its backward: gy [n], the
/// four, y -> glog_probs.
extern TD_API const OpDef ctc_loss, ctc_loss_backward;
}  // namespace op
TD_API std::span<const OpDef* const> loss_rows();
struct CtcAttrs {
  int64_t blank = 0;
  template <class V>
  void fields(V& v) {
    v("blank", blank);
  }
};

struct CrossEntropyOptions {
  Tensor weight = {};           ///< [c], factor of each class
  int64_t ignore_index = -100;  ///< targets with this label add nothing
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;
};
struct NllLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
struct LossOptions {
  Reduction reduction = Reduction::mean;
};
struct SmoothL1LossOptions {
  Reduction reduction = Reduction::mean;
  double beta = 1.0;
};
struct HuberLossOptions {
  Reduction reduction = Reduction::mean;
  double delta = 1.0;
};
struct BinaryCrossEntropyOptions {
  Tensor weight = {};
  Reduction reduction = Reduction::mean;
};
struct BinaryCrossEntropyWithLogitsOptions {
  Tensor weight = {};
  Reduction reduction = Reduction::mean;
  Tensor pos_weight = {};
};
struct KlDivOptions {
  Reduction reduction = Reduction::mean;
  bool log_target = false;
};
struct PoissonNllLossOptions {
  bool log_input = true, full = false;
  double eps = 1e-8;
  Reduction reduction = Reduction::mean;
};
struct GaussianNllLossOptions {
  bool full = false;
  double eps = 1e-6;
  Reduction reduction = Reduction::mean;
};
struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::mean;
};
struct CtcLossOptions {
  int64_t blank = 0;
  Reduction reduction = Reduction::mean;  ///< mean: of loss / target length
  bool zero_infinity = false;             ///< impossible targets contribute 0
};
struct MultiMarginLossOptions {
  int64_t p = 1;
  double margin = 1;
  Tensor weight = {};  ///< [c], factor of each class
  Reduction reduction = Reduction::mean;
};
struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};  ///< [c]
  Reduction reduction = Reduction::mean;
};
struct TripletMarginWithDistanceLossOptions {
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::mean;
};
struct FocalLossOptions {
  double alpha = 0.25;  ///< weight of the positive class; below 0: none
  double gamma = 2;
  Reduction reduction = Reduction::mean;
};
struct DiceLossOptions {
  double smooth = 1;
  Reduction reduction = Reduction::mean;
};
struct TverskyLossOptions {
  double alpha = 0.5, beta = 0.5;  ///< weights of false positives and false negatives
  double smooth = 1;
  Reduction reduction = Reduction::mean;
};
struct MarginOptions {
  double margin = 0;
  Reduction reduction = Reduction::mean;
};
struct TripletMarginLossOptions {
  double margin = 1.0, p = 2.0, eps = 1e-6;
  bool swap = false;
  Reduction reduction = Reduction::mean;
};

/// Cross-entropy of logits x [n, c, ...d] (or [c]) with integer labels [n, ...d], or with
/// probabilities of x's shape. Throws Value for a label outside [0, c) and for the mean of an
/// empty batch, Shape for sizes that do not fit.
TD_API Tensor cross_entropy(Tensor x, Tensor target, CrossEntropyOptions options = {},
                            SourceLocation loc = SourceLocation::here());
/// The same for log-probabilities with integer labels.
TD_API Tensor nll_loss(Tensor x, Tensor target, NllLossOptions options = {},
                       SourceLocation loc = SourceLocation::here());
/// (x - target)^2. Both have one shape; throws Shape otherwise (PyTorch only warns).
TD_API Tensor mse_loss(Tensor x, Tensor target, LossOptions options = {},
                       SourceLocation loc = SourceLocation::here());
/// |x - target|.
TD_API Tensor l1_loss(Tensor x, Tensor target, LossOptions options = {},
                      SourceLocation loc = SourceLocation::here());
/// 0.5 d^2 / beta where |d| < beta, else |d| - 0.5 beta.
TD_API Tensor smooth_l1_loss(Tensor x, Tensor target, SmoothL1LossOptions options = {},
                             SourceLocation loc = SourceLocation::here());
/// 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta).
TD_API Tensor huber_loss(Tensor x, Tensor target, HuberLossOptions options = {},
                         SourceLocation loc = SourceLocation::here());
/// -(t log x + (1 - t) log(1 - x)), logs clamped at -100. Throws Value for x outside [0, 1].
TD_API Tensor binary_cross_entropy(Tensor x, Tensor target, BinaryCrossEntropyOptions options = {},
                                   SourceLocation loc = SourceLocation::here());
/// The same for sigmoid(x), stable; pos_weight is the factor of the positive term.
TD_API Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target,
                                               BinaryCrossEntropyWithLogitsOptions options = {},
                                               SourceLocation loc = SourceLocation::here());
/// target (log target - x), where x and (with log_target) target are log-probabilities.
TD_API Tensor kl_div(Tensor x, Tensor target, KlDivOptions options = {},
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor poisson_nll_loss(Tensor x, Tensor target, PoissonNllLossOptions options = {},
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor gaussian_nll_loss(Tensor x, Tensor target, Tensor var,
                                GaussianNllLossOptions options = {},
                                SourceLocation loc = SourceLocation::here());
TD_API Tensor hinge_embedding_loss(Tensor x, Tensor target, HingeEmbeddingLossOptions options = {},
                                   SourceLocation loc = SourceLocation::here());
TD_API Tensor soft_margin_loss(Tensor x, Tensor target, LossOptions options = {},
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor margin_ranking_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options = {},
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor cosine_embedding_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options = {},
                                    SourceLocation loc = SourceLocation::here());
TD_API Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                                  TripletMarginLossOptions options = {},
                                  SourceLocation loc = SourceLocation::here());
/// The same with a custom distance; by default pairwise_distance.
TD_API Tensor triplet_margin_with_distance_loss(
    Tensor anchor, Tensor positive, Tensor negative,
    FunctionRef<Tensor(const Tensor&, const Tensor&)> distance_function,
    TripletMarginWithDistanceLossOptions options = {}, SourceLocation loc = SourceLocation::here());
TD_API Tensor triplet_margin_with_distance_loss(Tensor anchor, Tensor positive, Tensor negative,
                                                TripletMarginWithDistanceLossOptions options = {},
                                                SourceLocation loc = SourceLocation::here());
/// Connectionist temporal classification (Graves et al. 2006): log_probs [t, n, c] (or [t, c]),
/// targets [n, s] or concatenated, lengths [n]. Throws Value for a label that is the blank or out
/// of range, and for an impossible length. A target that no path reaches has loss inf.
TD_API Tensor ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths,
                       Tensor target_lengths, CtcLossOptions options = {},
                       SourceLocation loc = SourceLocation::here());
/// sum_j max(0, margin - x_y + x_j)^p / c over j != y: x [n, c] or [c], target [n] or 0-d.
TD_API Tensor multi_margin_loss(Tensor x, Tensor target, MultiMarginLossOptions options = {},
                                SourceLocation loc = SourceLocation::here());
/// Hinge between every class of target and every other: x [n, c] or [c], target i64 of x's shape:
/// classes, then -1.
TD_API Tensor multilabel_margin_loss(Tensor x, Tensor target, LossOptions options = {},
                                     SourceLocation loc = SourceLocation::here());
/// Mean over classes of the binary cross-entropy of sigmoid(x).
TD_API Tensor multilabel_soft_margin_loss(Tensor x, Tensor target,
                                          MultiLabelSoftMarginLossOptions options = {},
                                          SourceLocation loc = SourceLocation::here());
/// Binary cross-entropy of sigmoid(x) times (1 - p of the truth)^gamma (Lin et al. 2017).
TD_API Tensor sigmoid_focal_loss(Tensor x, Tensor target, FocalLossOptions options = {},
                                 SourceLocation loc = SourceLocation::here());
/// 1 - (2 sum(x t) + smooth) / (sum x + sum t + smooth) per sample (dimension 0); x probabilities.
TD_API Tensor dice_loss(Tensor x, Tensor target, DiceLossOptions options = {},
                        SourceLocation loc = SourceLocation::here());
/// 1 - (tp + smooth) / (tp + alpha fp + beta fn + smooth) per sample (Salehi et al. 2017).
TD_API Tensor tversky_loss(Tensor x, Tensor target, TverskyLossOptions options = {},
                           SourceLocation loc = SourceLocation::here());
/// log(cosh(x - target)) without overflow.
TD_API Tensor log_cosh_loss(Tensor x, Tensor target, LossOptions options = {},
                            SourceLocation loc = SourceLocation::here());
/// x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim; the two broadcast.
TD_API Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim = 1, double eps = 1e-8,
                                SourceLocation loc = SourceLocation::here());
/// ||x1 - x2 + eps||_p along the last dimension.
TD_API Tensor pairwise_distance(Tensor x1, Tensor x2, double p = 2.0, double eps = 1e-6,
                                bool keepdim = false, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
