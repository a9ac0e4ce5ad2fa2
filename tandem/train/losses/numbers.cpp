// SPDX-License-Identifier: Apache-2.0
// Losses of numbers with PyTorch's names, options and defaults.
#include "tandem/ops/ops.h"
#include "tandem/train/losses.h"

namespace tandem::train {
namespace {

// The options of the ops (ops/nn/loss.h) that recipes take.
struct Plain : LossOptions {
  template <class V>
  void fields(V&) {}
};
struct SmoothL1 : SmoothL1LossOptions {
  template <class V>
  void fields(V& v) {
    v("beta", beta, {.doc = "where the parabola ends"});
  }
};
struct Huber : HuberLossOptions {
  template <class V>
  void fields(V& v) {
    v("delta", delta, {.doc = "where the parabola ends"});
  }
};
struct BinaryCrossEntropy : BinaryCrossEntropyOptions {
  template <class V>
  void fields(V&) {}
};
struct MultiLabelSoftMargin : MultiLabelSoftMarginLossOptions {
  template <class V>
  void fields(V&) {}
};
struct KlDiv : KlDivOptions {
  template <class V>
  void fields(V& v) {
    v("log_target", log_target, {.doc = "targets are log-probabilities"});
  }
};
struct PoissonNll : PoissonNllLossOptions {
  template <class V>
  void fields(V& v) {
    v("log_input", log_input, {.doc = "outputs are logarithms of rates"});
    v("full", full, {.doc = "with Stirling's term"});
  }
};
struct HingeEmbedding : HingeEmbeddingLossOptions {
  template <class V>
  void fields(V& v) {
    v("margin", margin, {.doc = "margin to be reached"});
  }
};
struct Focal : FocalLossOptions {
  template <class V>
  void fields(V& v) {
    v("alpha", alpha, {.doc = "weight of the positive class; below 0: none"});
    v("gamma", gamma, {.doc = "power of 1 - p of the truth"});
  }
};
struct Dice : DiceLossOptions {
  template <class V>
  void fields(V& v) {
    v("smooth", smooth, {.doc = "added above and below"});
  }
};
struct Tversky : TverskyLossOptions {
  template <class V>
  void fields(V& v) {
    v("alpha", alpha, {.doc = "weight of false positives"});
    v("beta", beta, {.doc = "weight of false negatives"});
    v("smooth", smooth, {.doc = "added above and below"});
  }
};

// PyTorch's "batchmean".
Tensor kl_div_of(const Tensor& x, const Tensor& y, KlDivOptions o, SourceLocation loc) {
  o.reduction = Reduction::sum;
  return kl_div(x, y, o, loc) / static_cast<double>(x.size(0));
}
Tensor huber_elements(const Tensor& x, const Tensor& y) {
  return huber_loss(x, y, {.reduction = Reduction::none});
}

}  // namespace

Tensor squared_errors(const Tensor& x, const Tensor& y) { return square(x - y); }

namespace loss_rows {
constinit const LossRow mse =
    both(numbers_loss<Plain, mse_loss>("mse", "Mean of (x - y)^2.", "{type: mse}"),
         keras_loss<squared_errors>("mse", "", ""));
constinit const LossRow l1 = numbers_loss<Plain, l1_loss>("l1", "Mean of |x - y|.", "{type: l1}");
constinit const LossRow smooth_l1 = numbers_loss<SmoothL1, smooth_l1_loss>(
    "smooth_l1", "d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.",
    "{type: smooth_l1, beta: 0.5}");
constinit const LossRow huber =
    both(numbers_loss<Huber, huber_loss>(
             "huber", "d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).",
             "{type: huber, delta: 0.3}"),
         keras_loss<huber_elements>("huber", "", ""));
constinit const LossRow bce = numbers_loss<BinaryCrossEntropy, binary_cross_entropy>(
    "bce", "Binary cross-entropy of probabilities.", "{type: bce}");
constinit const LossRow soft_margin = numbers_loss<Plain, soft_margin_loss>(
    "soft_margin", "log(1 + exp(-y x)) with labels -1 and 1.", "{type: soft_margin}");
constinit const LossRow multilabel_soft_margin =
    numbers_loss<MultiLabelSoftMargin, multilabel_soft_margin_loss>(
        "multilabel_soft_margin", "Mean over classes of the binary cross-entropy of sigmoid(x).",
        "{type: multilabel_soft_margin}");
constinit const LossRow kl_div = numbers_loss<KlDiv, kl_div_of>(
    "kl_div", "Kullback-Leibler divergence of log-probabilities, summed and divided by the batch.",
    "{type: kl_div}");
constinit const LossRow poisson_nll = numbers_loss<PoissonNll, poisson_nll_loss>(
    "poisson_nll", "Negative log-likelihood of counts.", "{type: poisson_nll}");
constinit const LossRow hinge_embedding = numbers_loss<HingeEmbedding, hinge_embedding_loss>(
    "hinge_embedding", "x where y is 1, max(0, margin - x) where it is -1.",
    "{type: hinge_embedding}");
constinit const LossRow focal = numbers_loss<Focal, sigmoid_focal_loss>(
    "focal",
    "Binary cross-entropy of sigmoid(x) times (1 - p of the truth)^gamma (Lin et al. 2017).",
    "{type: focal}");
constinit const LossRow dice = numbers_loss<Dice, dice_loss>(
    "dice", "1 - (2 sum(x y) + smooth) / (sum x + sum y + smooth) per sample; x probabilities.",
    "{type: dice}");
constinit const LossRow tversky = numbers_loss<Tversky, tversky_loss>(
    "tversky",
    "1 - (tp + smooth) / (tp + alpha fp + beta fn + smooth) per sample (Salehi et al. 2017).",
    "{type: tversky, alpha: 0.3, beta: 0.7}");
}  // namespace loss_rows

}  // namespace tandem::train
