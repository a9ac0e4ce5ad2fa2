// SPDX-License-Identifier: Apache-2.0
// Class losses beyond cross-entropy: margins, multiple labels, focal, overlap. All are composed of
// public ops; formulas are PyTorch's where it has them.
#include <cmath>

#include "tandem/ops/index/index.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::placed;

Tensor finish(const char* name, Tensor loss, Reduction r, SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(r != Reduction::batchmean, Value, "Reduction::batchmean is for kl_div\nUse mean.");
  });
  if (r == Reduction::none) return loss;
  return r == Reduction::mean ? loss.mean({}, false, loc) : loss.sum({}, false, loc);
}

bool same_shape(const Tensor& a, const Tensor& b) {
  bool same = a.dim() == b.dim();
  for (int i = 0; same && i < a.dim(); ++i) same = dims_equal(a.shape(i), b.shape(i));
  return same;
}

void check_pair(const char* name, const Tensor& x, const Tensor& target, SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(same_shape(x, target), Shape,
             "x is {}, target is {}: they must have one shape\nReshape or expand one of them.",
             x.shape().to_string(), target.shape().to_string());
    TD_CHECK(is_floating(x.dtype()), DType,
             "x is {}, expected a floating dtype\nCast it with .to(float32).",
             to_string(x.dtype()));
  });
}

void check_weight(const Tensor& w, Dim classes) {
  TD_CHECK(!w.defined() || (w.dim() == 1 && dims_equal(w.shape(0), classes)), Shape,
           "weight is {}, expected one factor per class, [{}]",
           w.defined() ? w.shape().to_string() : "", classes.to_string());
}

void check_classes(const Tensor& x, const Tensor& target, bool per_sample) {
  TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "x expects [n, classes] or [classes], got {}",
           x.shape().to_string());
  TD_CHECK(is_floating(x.dtype()), DType,
           "x is {}, expected a floating dtype\nCast it with .to(float32).", to_string(x.dtype()));
  TD_CHECK(is_integral(target.dtype()), DType,
           "target is {}, expected integer labels\nCast it with .to(int64).",
           to_string(target.dtype()));
  bool fits = per_sample ? target.dim() == x.dim() - 1 &&
                               (x.dim() == 1 || dims_equal(target.shape(0), x.shape(0)))
                         : same_shape(x, target);
  TD_CHECK(fits, Shape, "target is {}, x is {}: {}", target.shape().to_string(),
           x.shape().to_string(),
           per_sample ? "expected one label per sample" : "they must have one shape");
}

// The dims summed per sample: all but the first.
IntList but_first(const Tensor& x) {
  IntList d;
  for (int i = 1; i < x.dim(); ++i) d.push_back(i);
  return d;
}

// Sum per sample; a 1-d x has one number each.
Tensor per_sample(const Tensor& x, SourceLocation loc) {
  return x.dim() > 1 ? x.sum(but_first(x), false, loc) : x;
}

}  // namespace

Tensor multi_margin_loss(Tensor x, Tensor target, MultiMarginLossOptions o, SourceLocation loc) {
  placed("multi_margin_loss", loc, [&] {
    check_classes(x, target, true);
    check_weight(o.weight, x.shape(-1));
    TD_CHECK(o.p == 1 || o.p == 2, Value, "p is {}, expected 1 or 2", o.p);
  });
  bool single = x.dim() == 1;
  if (single) {
    x = x.unsqueeze(0, loc);
    target = target.unsqueeze(0, loc);
  }
  Tensor label = target.unsqueeze(1, loc);
  Tensor z = clamp_min(o.margin - gather(x, 1, label, loc) + x, 0.0, loc);
  if (o.p == 2) z = z.square(loc);
  if (o.weight.defined()) z = z * index_select(o.weight, 0, target, loc).unsqueeze(1, loc);
  Tensor own = arange_dim(x.shape(1), loc) == label;
  Tensor y = where(own, 0.0, z, loc).mean({1}, false, loc);
  if (single) y = y.squeeze(0, loc);
  return finish("multi_margin_loss", std::move(y), o.reduction, loc);
}

Tensor multilabel_margin_loss(Tensor x, Tensor target, LossOptions o, SourceLocation loc) {
  placed("multilabel_margin_loss", loc, [&] { check_classes(x, target, false); });
  const DeviceGuard there(x.device());
  bool single = x.dim() == 1;
  if (single) {
    x = x.unsqueeze(0, loc);
    target = target.unsqueeze(0, loc);
  }
  DType t = x.dtype();
  // Labels count up to the first negative one.
  Tensor valid = cumprod((target >= 0).to(DType::i64, loc), 1, loc);
  Tensor label = clamp_min(target, 0, loc) * valid;
  Tensor is_target = scatter_add(zeros(x.shape(), DType::i64, loc), 1, label, valid, loc) > 0;
  Tensor own = gather(x, 1, label, loc);
  Tensor z = clamp_min(1.0 - own.unsqueeze(2, loc) + x.unsqueeze(1, loc), 0.0, loc);
  Tensor counts =
      valid.to(t, loc).unsqueeze(2, loc) * logical_not(is_target, loc).to(t, loc).unsqueeze(1, loc);
  Tensor y = (z * counts).sum({1, 2}, false, loc) / static_cast<double>(x.size(1));
  if (single) y = y.squeeze(0, loc);
  return finish("multilabel_margin_loss", std::move(y), o.reduction, loc);
}

Tensor multilabel_soft_margin_loss(Tensor x, Tensor target, MultiLabelSoftMarginLossOptions o,
                                   SourceLocation loc) {
  check_pair("multilabel_soft_margin_loss", x, target, loc);
  placed("multilabel_soft_margin_loss", loc, [&] {
    TD_CHECK(x.dim() >= 1, Shape, "x must have classes in its last dimension, it is 0-d");
    check_weight(o.weight, x.shape(-1));
  });
  Tensor y = -(target * logsigmoid(x, loc) + (1.0 - target) * logsigmoid(-x, loc));
  if (o.weight.defined()) y = y * o.weight;
  return finish("multilabel_soft_margin_loss", y.mean({-1}, false, loc), o.reduction, loc);
}

Tensor triplet_margin_with_distance_loss(Tensor anchor, Tensor positive, Tensor negative,
                                         FunctionRef<Tensor(const Tensor&, const Tensor&)> distance,
                                         TripletMarginWithDistanceLossOptions o,
                                         SourceLocation loc) {
  placed("triplet_margin_with_distance_loss", loc, [&] {
    TD_CHECK(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), Shape,
             "anchor {}, positive {} and negative {} expect one number of dimensions",
             anchor.shape().to_string(), positive.shape().to_string(),
             negative.shape().to_string());
  });
  Tensor near = distance(anchor, positive), far = distance(anchor, negative);
  if (o.swap) far = minimum(far, distance(positive, negative), loc);
  return finish("triplet_margin_with_distance_loss", clamp_min(near - far + o.margin, 0.0, loc),
                o.reduction, loc);
}

Tensor triplet_margin_with_distance_loss(Tensor anchor, Tensor positive, Tensor negative,
                                         TripletMarginWithDistanceLossOptions o,
                                         SourceLocation loc) {
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, 2, 1e-6, false, loc);
  };
  return detail::named("triplet_margin_with_distance_loss", loc, [&] {
    return triplet_margin_with_distance_loss(std::move(anchor), std::move(positive),
                                             std::move(negative), distance, o, loc);
  });
}

Tensor sigmoid_focal_loss(Tensor x, Tensor target, FocalLossOptions o, SourceLocation loc) {
  check_pair("sigmoid_focal_loss", x, target, loc);
  Tensor p = x.sigmoid(loc);
  Tensor loss = binary_cross_entropy_with_logits(x, target, {.reduction = Reduction::none}, loc);
  Tensor truth = p * target + (1.0 - p) * (1.0 - target);
  loss = loss * pow(1.0 - truth, o.gamma, loc);
  if (o.alpha >= 0) loss = loss * (o.alpha * target + (1 - o.alpha) * (1.0 - target));
  return finish("sigmoid_focal_loss", std::move(loss), o.reduction, loc);
}

Tensor dice_loss(Tensor x, Tensor target, DiceLossOptions o, SourceLocation loc) {
  check_pair("dice_loss", x, target, loc);
  placed("dice_loss", loc,
         [&] { TD_CHECK(x.dim() >= 1, Shape, "x must have a batch dimension, it is 0-d"); });
  Tensor both = per_sample(x * target, loc);
  Tensor sizes = per_sample(x, loc) + per_sample(target, loc);
  return finish("dice_loss", 1.0 - (2.0 * both + o.smooth) / (sizes + o.smooth), o.reduction, loc);
}

Tensor tversky_loss(Tensor x, Tensor target, TverskyLossOptions o, SourceLocation loc) {
  check_pair("tversky_loss", x, target, loc);
  placed("tversky_loss", loc,
         [&] { TD_CHECK(x.dim() >= 1, Shape, "x must have a batch dimension, it is 0-d"); });
  Tensor both = per_sample(x * target, loc);
  Tensor too_much = per_sample(x * (1.0 - target), loc);
  Tensor missed = per_sample((1.0 - x) * target, loc);
  Tensor index = (both + o.smooth) / (both + o.alpha * too_much + o.beta * missed + o.smooth);
  return finish("tversky_loss", 1.0 - index, o.reduction, loc);
}

Tensor log_cosh_loss(Tensor x, Tensor target, LossOptions o, SourceLocation loc) {
  check_pair("log_cosh_loss", x, target, loc);
  Tensor d = abs(x - target, loc);
  return finish("log_cosh_loss", d + log1p(exp(-2.0 * d, loc), loc) - std::log(2.0), o.reduction,
                loc);
}

}  // namespace tandem
