// SPDX-License-Identifier: Apache-2.0
// The loss functions: cross_entropy and nll_loss select a row of class_loss.cpp, the others are
// elementwise expressions of public ops and one reduction. Formulas are PyTorch's.
#include "tandem/ops/nn/loss.h"

#include <cmath>
#include <optional>

#include "tandem/graph/context.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/dim_tensor.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::named;
using detail::placed;

// Under autocast losses are computed in f32.
Tensor loss_input(Tensor x, SourceLocation loc) {
  bool low = x.defined() && is_short_float(x.dtype());
  return low && (context().slow & kAutocast) ? x.to(DType::f32, loc) : x;
}

bool same_shape(const Shape& a, const Shape& b) {
  bool same = a.rank() == b.rank();
  for (int i = 0; same && i < a.rank(); ++i) same = dims_equal(a[i], b[i]);
  return same;
}

// Checks that both are floating and of one shape; casts them to f32 under autocast.
void check_pair(const char* name, Tensor& x, Tensor& target, SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(same_shape(x.shape(), target.shape()), Shape,
             "x is {}, target is {}: they must have one shape\nReshape or expand one of them.",
             x.shape().to_string(), target.shape().to_string());
    TD_CHECK(is_floating(x.dtype()), DType,
             "x is {}, expected a floating dtype\nCast it with "
             ".to(float32).",
             to_string(x.dtype()));
  });
  x = loss_input(std::move(x), loc);
  target = loss_input(std::move(target), loc);
}

Tensor reduced(Tensor loss, Reduction r, SourceLocation loc) {
  switch (r) {
    case Reduction::mean:
      return loss.mean({}, false, loc);
    case Reduction::sum:
      return loss.sum({}, false, loc);
    case Reduction::none:
      return loss;
    case Reduction::batchmean:
      break;
  }
  placed("loss", loc, [&] {
    TD_CHECK(loss.dim() >= 1, Shape, "Reduction::batchmean expects a batch dimension, x is 0-d");
  });
  Tensor sum = loss.sum({}, false, loc);
  if (loss.shape(0).is_symbolic()) return sum / dim_tensor(loss.shape(0), loc).to(sum.dtype(), loc);
  return sum / static_cast<double>(loss.size(0));
}

// ---- binary_cross_entropy per element

void bce_infer(InferCall& c) {
  const Spec &x = c.in[0], &t = c.in[1];
  TD_CHECK(is_floating(x.dtype) && x.dtype == t.dtype, DType,
           "x is {}, target is {}: expected one floating dtype", to_string(x.dtype),
           to_string(t.dtype));
  TD_CHECK(same_shape(x.shape, t.shape), Shape, "x is {}, target is {}: they must have one shape",
           x.shape.to_string(), t.shape.to_string());
  c.out[0] = Spec(x.dtype, x.shape, x.device);
}

Tensor cut_log(const Tensor& x) { return clamp_min(log(x), -100.0); }
Tensor cut_log1m(const Tensor& x) { return clamp_min(log1p(-x), -100.0); }

void bce_body(BodyCall& c) {
  const Tensor &x = c.in[0], &t = c.in[1];
  c.out[0] = (t - 1.0) * cut_log1m(x) - t * cut_log(x);
}

void bce_vjp(VjpCall& c) {
  const Tensor &x = c.in(0), &t = c.in(1), &g = c.grad();
  if (c.needs(0)) c.results[0] = g * (x - t) / clamp_min((1.0 - x) * x, 1e-12);
  if (c.needs(1)) c.results[1] = g * (cut_log1m(x) - cut_log(x));
}

void bce_batch(BatchCall& c) {
  c.out[0] = call(op::binary_cross_entropy, nullptr, c.node.loc, detail::with_batch(c, 0),
                  detail::with_batch(c, 1));
}

// ---- norms

// The p-norm along `dim`; its gradient at 0 is 0.
Tensor p_norm(const Tensor& x, double p, int64_t dim, bool keepdim) {
  if (p != 2) return norm(x, p, {dim}, keepdim);
  Tensor s = x.square().sum({dim}, keepdim);
  Tensor zero = s == 0.0;
  return where(zero, 0.0, sqrt(where(zero, 1.0, s)));
}

// ---- cross-entropy with probabilities

Tensor probability_loss(Tensor x, Tensor target, const CrossEntropyOptions& o, SourceLocation loc) {
  placed("cross_entropy", loc, [&] {
    TD_CHECK(same_shape(x.shape(), target.shape()), Shape,
             "target is {}, so it holds probabilities {}, x is {}: they must have one shape\n{}",
             to_string(target.dtype()), target.shape().to_string(), x.shape().to_string(),
             x.dim() + 1 == target.dim() ? "The order is (x, target)."
                                         : "Class labels are integers: pass target.to(int64).");
    TD_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1, Value,
             "label_smoothing is {}, expected 0 to 1", o.label_smoothing);
  });
  bool single = x.dim() == 1;
  if (single) x = x.unsqueeze(0, loc);
  if (single) target = target.unsqueeze(0, loc);
  Dim classes = x.shape(1);
  Tensor t = target;
  if (o.label_smoothing > 0)
    t = t * (1.0 - o.label_smoothing) + o.label_smoothing / static_cast<double>(classes.value());
  Tensor terms = log_softmax(std::move(x), 1, {}, loc) * t;
  if (o.weight.defined()) {
    Shape s{Dim(1), o.weight.shape(0)};
    for (int i = 2; i < terms.dim(); ++i) s.push_back(1);
    terms = std::move(terms) * o.weight.reshape(s, loc);
  }
  Tensor loss = -terms.sum({1}, false, loc);
  if (single) loss = loss.squeeze(0, loc);
  placed("cross_entropy", loc, [&] {
    TD_CHECK(o.reduction != Reduction::mean || loss.shape().is_symbolic() || loss.numel() > 0,
             Value,
             "x is {}: an empty batch has no mean loss\nSkip empty batches, or use "
             "Reduction::sum.",
             target.shape().to_string());
  });
  return reduced(std::move(loss), o.reduction, loc);
}

int64_t reduction_code(Reduction r, const char* name, SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(r != Reduction::batchmean, Value, "Reduction::batchmean is for kl_div\nUse mean.");
  });
  return static_cast<int64_t>(r);
}

// x [c] with one label is a batch of one.
Tensor class_loss(const OpDef& row, Tensor x, Tensor target, Tensor weight, const ClassLossAttrs& a,
                  SourceLocation loc) {
  bool single = x.defined() && target.defined() && x.dim() == 1 && target.dim() == 0;
  if (single) {
    x = x.unsqueeze(0, loc);
    target = target.unsqueeze(0, loc);
  }
  Tensor y = call(row, &a, loc, std::move(x), std::move(target), std::move(weight));
  return single && y.dim() == 1 ? y.squeeze(0, loc) : y;
}

// A per-element loss, most with one extra number.
Tensor row_of(const OpDef& row, const Tensor& x, const Tensor& target, std::optional<double> n,
              SourceLocation loc) {
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(x, loc), Operand(target, loc), Operand(n.value_or(0))};
  apply(row, nullptr, std::span(ins, n ? 3 : 2), out, loc);
  return std::move(out[0]);
}

}  // namespace

namespace op {
constinit const OpDef binary_cross_entropy =
    composite("binary_cross_entropy", {"x", "target"}, nullptr, bce_body)
        .infer(bce_infer)
        .vjp(bce_vjp, 3)
        .batch(bce_batch)
        .autocast(Autocast::f32_inside)
        .errors({"x contains a number outside 0..1 (or NaN)\nPass probabilities, or logits to "
                 "binary_cross_entropy_with_logits."})
        .doc("-(t log x + (1 - t) log(1 - x)) per element, logs clamped at -100.");
}  // namespace op

std::span<const OpDef* const> loss_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::softmax_cross_entropy, &op::softmax_cross_entropy_backward, &op::nll_loss,
      &op::nll_loss_backward,     &op::binary_cross_entropy,           &op::ctc_loss,
      &op::ctc_loss_backward};
  return kRows;
}

Tensor cross_entropy(Tensor x, Tensor target, CrossEntropyOptions options, SourceLocation loc) {
  return named("cross_entropy", loc, [&]() -> Tensor {
    if (x.defined() && target.defined() && is_floating(target.dtype()))
      return probability_loss(loss_input(std::move(x), loc), loss_input(std::move(target), loc),
                              options, loc);
    ClassLossAttrs a;
    a.reduction = reduction_code(options.reduction, "cross_entropy", loc);
    a.ignore_index = options.ignore_index;
    a.label_smoothing = options.label_smoothing;
    return class_loss(op::softmax_cross_entropy, std::move(x), std::move(target),
                      std::move(options.weight), a, loc);
  });
}

Tensor nll_loss(Tensor x, Tensor target, NllLossOptions options, SourceLocation loc) {
  ClassLossAttrs a;
  a.reduction = reduction_code(options.reduction, "nll_loss", loc);
  a.ignore_index = options.ignore_index;
  return class_loss(op::nll_loss, std::move(x), std::move(target), std::move(options.weight), a,
                    loc);
}

Tensor mse_loss(Tensor x, Tensor target, LossOptions options, SourceLocation loc) {
  check_pair("mse_loss", x, target, loc);
  return reduced((x - target).square(loc), options.reduction, loc);
}

Tensor l1_loss(Tensor x, Tensor target, LossOptions options, SourceLocation loc) {
  check_pair("l1_loss", x, target, loc);
  return reduced((x - target).abs(loc), options.reduction, loc);
}

Tensor smooth_l1_loss(Tensor x, Tensor target, SmoothL1LossOptions options, SourceLocation loc) {
  check_pair("smooth_l1_loss", x, target, loc);
  placed("smooth_l1_loss", loc, [&] {
    TD_CHECK(options.beta >= 0, Value, "beta is {}, expected at least 0", options.beta);
  });
  if (options.beta == 0) return reduced((x - target).abs(loc), options.reduction, loc);
  return reduced(row_of(op::smooth_l1, x, target, options.beta, loc), options.reduction, loc);
}

Tensor huber_loss(Tensor x, Tensor target, HuberLossOptions options, SourceLocation loc) {
  check_pair("huber_loss", x, target, loc);
  placed("huber_loss", loc, [&] {
    TD_CHECK(options.delta > 0, Value, "delta is {}, expected more than 0", options.delta);
  });
  return reduced(row_of(op::huber, x, target, options.delta, loc), options.reduction, loc);
}

Tensor binary_cross_entropy(Tensor x, Tensor target, BinaryCrossEntropyOptions options,
                            SourceLocation loc) {
  x = loss_input(std::move(x), loc);
  target = loss_input(std::move(target), loc);
  // The kernel, which also checks x, walks dense arrays.
  if (x.defined()) x = contiguous(std::move(x), loc);
  if (target.defined()) target = contiguous(std::move(target), loc);
  Tensor y = call(op::binary_cross_entropy, nullptr, loc, std::move(x), std::move(target));
  if (options.weight.defined()) y = std::move(y) * options.weight;
  return reduced(std::move(y), options.reduction, loc);
}

Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target,
                                        BinaryCrossEntropyWithLogitsOptions options,
                                        SourceLocation loc) {
  check_pair("binary_cross_entropy_with_logits", x, target, loc);
  Tensor y;
  if (options.pos_weight.defined())
    y = (1.0 - target) * x - logsigmoid(x, loc) * ((options.pos_weight - 1.0) * target + 1.0);
  else
    y = row_of(op::bce_with_logits, x, target, std::nullopt, loc);
  if (options.weight.defined()) y = std::move(y) * options.weight;
  return reduced(std::move(y), options.reduction, loc);
}

Tensor kl_div(Tensor x, Tensor target, KlDivOptions options, SourceLocation loc) {
  check_pair("kl_div", x, target, loc);
  Tensor y =
      options.log_target ? target.exp(loc) * (target - x) : xlogy(target, target, loc) - target * x;
  return reduced(std::move(y), options.reduction, loc);
}

Tensor poisson_nll_loss(Tensor x, Tensor target, PoissonNllLossOptions options,
                        SourceLocation loc) {
  check_pair("poisson_nll_loss", x, target, loc);
  Tensor y = options.log_input ? x.exp(loc) - target * x : x - target * log(x + options.eps, loc);
  if (options.full) {
    Tensor t = clamp_min(target, 1.0);
    Tensor stirling = t * log(t) - t + log(t * 6.283185307179586) * 0.5;
    y = std::move(y) + where(target > 1.0, stirling, 0.0);
  }
  return reduced(std::move(y), options.reduction, loc);
}

Tensor gaussian_nll_loss(Tensor x, Tensor target, Tensor var, GaussianNllLossOptions options,
                         SourceLocation loc) {
  check_pair("gaussian_nll_loss", x, target, loc);
  var = clamp_min(loss_input(std::move(var), loc), options.eps, loc);
  Tensor y = (log(var) + (x - target).square() / var) * 0.5;
  if (options.full) y = std::move(y) + 0.9189385332046727;
  return reduced(std::move(y), options.reduction, loc);
}

Tensor hinge_embedding_loss(Tensor x, Tensor target, HingeEmbeddingLossOptions options,
                            SourceLocation loc) {
  check_pair("hinge_embedding_loss", x, target, loc);
  Tensor zero_or_margin = where(target != 1.0, clamp_min(options.margin - x, 0.0), 0.0);
  Tensor y = std::move(zero_or_margin) + where(target != -1.0, x, 0.0);
  return reduced(std::move(y), options.reduction, loc);
}

Tensor soft_margin_loss(Tensor x, Tensor target, LossOptions options, SourceLocation loc) {
  check_pair("soft_margin_loss", x, target, loc);
  return reduced(-logsigmoid(target * x, loc), options.reduction, loc);
}

Tensor margin_ranking_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options,
                           SourceLocation loc) {
  check_pair("margin_ranking_loss", x1, x2, loc);
  Tensor y = clamp_min((x2 - x1) * loss_input(std::move(target), loc) + options.margin, 0.0);
  return reduced(std::move(y), options.reduction, loc);
}

Tensor cosine_embedding_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options,
                             SourceLocation loc) {
  return named("cosine_embedding_loss", loc, [&] {
    check_pair("cosine_embedding_loss", x1, x2, loc);
    int64_t dim = x1.dim() - 1;
    Tensor both = (x1 * x2).sum({dim});
    Tensor sizes = (x1.square().sum({dim}) + 1e-12) * (x2.square().sum({dim}) + 1e-12);
    Tensor cosine = both / sqrt(sizes);
    Tensor y = where(target == 1, 1.0 - cosine, 0.0) +
               where(target == -1, clamp_min(cosine - options.margin, 0.0), 0.0);
    return reduced(std::move(y), options.reduction, loc);
  });
}

Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                           TripletMarginLossOptions options, SourceLocation loc) {
  return named("triplet_margin_loss", loc, [&] {
    double p = options.p, eps = options.eps;
    Tensor near = pairwise_distance(anchor, positive, p, eps, false, loc);
    Tensor far = pairwise_distance(anchor, negative, p, eps, false, loc);
    if (options.swap)
      far = minimum(std::move(far), pairwise_distance(positive, negative, p, eps, false, loc));
    Tensor y = clamp_min(near - far + options.margin, 0.0);
    return reduced(std::move(y), options.reduction, loc);
  });
}

Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim, double eps, SourceLocation loc) {
  int d = placed("cosine_similarity", loc, [&] {
    return normalize_dim(dim, broadcast_shapes(x1.shape(), x2.shape()).rank());
  });
  // Counted from the right, so that a missing leading dimension of either does not matter.
  int64_t at = d - broadcast_shapes(x1.shape(), x2.shape()).rank();
  Tensor a = loss_input(std::move(x1), loc), b = loss_input(std::move(x2), loc);
  placed("cosine_similarity", loc, [&] {
    TD_CHECK(-at <= a.dim() && -at <= b.dim(), Shape,
             "x1 is {}, x2 is {}: both expect dimension {}", a.shape().to_string(),
             b.shape().to_string(), dim);
  });
  Tensor na = clamp_min(p_norm(a, 2, at, true), eps), nb = clamp_min(p_norm(b, 2, at, true), eps);
  return ((a / na) * (b / nb)).sum({at}, false, loc);
}

Tensor pairwise_distance(Tensor x1, Tensor x2, double p, double eps, bool keepdim,
                         SourceLocation loc) {
  return named("pairwise_distance", loc, [&] {
    Tensor d = loss_input(std::move(x1), loc) - loss_input(std::move(x2), loc);
    TD_CHECK(d.dim() >= 1, Shape, "x1 and x2 are scalars, expected vectors");
    return p_norm(d + eps, p, -1, keepdim);
  });
}

Tensor normalize(Tensor x, double p, int64_t dim, double eps, SourceLocation loc) {
  placed("normalize", loc, [&] {
    normalize_dim(dim, x.dim());
    TD_CHECK(p > 0, Value, "p is {}, expected more than 0", p);
  });
  return x / clamp_min(p_norm(x, p, dim, true), eps);
}

}  // namespace tandem
