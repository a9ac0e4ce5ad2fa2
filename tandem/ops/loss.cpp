// SPDX-License-Identifier: Apache-2.0
// The loss functions: cross_entropy and nll_loss choose a row of class_loss.cpp, the others are
// element-wise expressions of public ops and one reduction. Formulas are PyTorch's.
#include "tandem/ops/loss.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/view.h"

namespace tandem {
namespace {

using detail::placed;

// Under autocast losses are computed in f32.
Tensor loss_input(Tensor x, Where where) {
  bool low = x.defined() && (x.dtype() == DType::f16 || x.dtype() == DType::bf16);
  return low && (context().slow & kAutocast) ? x.to(DType::f32, where) : x;
}

bool same_shape(const Shape& a, const Shape& b) {
  bool same = a.rank() == b.rank();
  for (int i = 0; same && i < a.rank(); ++i) same = dims_equal(a[i], b[i]);
  return same;
}

// Both of one shape and floating; brings them to f32 under autocast.
void check_pair(const char* name, Tensor& x, Tensor& target, Where where) {
  placed(name, where, [&] {
    TD_CHECK(same_shape(x.shape(), target.shape()), Shape,
             "x is {}, target is {}: they must have one shape\nReshape or expand one of them.",
             x.shape().to_string(), target.shape().to_string());
    TD_CHECK(is_floating(x.dtype()), DType,
             "x is {}, wants a floating dtype\nCast it with "
             ".to(float32).",
             to_string(x.dtype()));
  });
  x = loss_input(std::move(x), where);
  target = loss_input(std::move(target), where);
}

Tensor reduced(Tensor loss, Reduction r, Where where) {
  switch (r) {
    case Reduction::mean:
      return loss.mean({}, false, where);
    case Reduction::sum:
      return loss.sum({}, false, where);
    case Reduction::none:
      return loss;
    case Reduction::batchmean:
      break;
  }
  placed("loss", where, [&] {
    TD_CHECK(loss.dim() >= 1, Shape, "Reduction::batchmean wants a batch dimension, x is 0-d");
  });
  Tensor sum = loss.sum({}, false, where);
  return sum / static_cast<double>(loss.size(0));
}

// ---- binary_cross_entropy per element

void bce_infer(InferCall& c) {
  const Spec &x = c.in[0], &t = c.in[1];
  TD_CHECK(is_floating(x.dtype) && x.dtype == t.dtype, DType,
           "x is {}, target is {}: one floating dtype is wanted", to_string(x.dtype),
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
  c.out[0] = call(op::binary_cross_entropy, nullptr, c.node.where, detail::with_batch(c, 0),
                  detail::with_batch(c, 1));
}

// ---- lengths

// The p-norm along `dim`; its gradient at 0 is 0.
Tensor p_norm(const Tensor& x, double p, int64_t dim, bool keepdim) {
  if (p == 1) return x.abs().sum({dim}, keepdim);
  if (std::isinf(p)) return x.abs().amax({dim}, keepdim);
  Tensor s = p == 2 ? x.square().sum({dim}, keepdim) : pow(x.abs(), p).sum({dim}, keepdim);
  Tensor zero = s == 0.0;
  Tensor safe = where(zero, 1.0, s);
  return where(zero, 0.0, p == 2 ? sqrt(safe) : pow(safe, 1.0 / p));
}

// ---- cross-entropy with probabilities

Tensor probability_loss(Tensor x, Tensor target, const CrossEntropyOptions& o, Where where) {
  placed("cross_entropy", where, [&] {
    TD_CHECK(same_shape(x.shape(), target.shape()), Shape,
             "target holds probabilities {}, x is {}: they must have one shape\nInteger labels "
             "have dtype int64 and no class dimension.",
             target.shape().to_string(), x.shape().to_string());
    TD_CHECK(o.label_smoothing >= 0 && o.label_smoothing <= 1, Value,
             "label_smoothing is {}, wants 0 to 1", o.label_smoothing);
  });
  bool single = x.dim() == 1;
  if (single) x = x.unsqueeze(0, where);
  if (single) target = target.unsqueeze(0, where);
  Dim classes = x.shape(1);
  Tensor t = target;
  if (o.label_smoothing > 0)
    t = t * (1.0 - o.label_smoothing) + o.label_smoothing / static_cast<double>(classes.value());
  Tensor terms = log_softmax(std::move(x), 1, {}, where) * t;
  if (o.weight.defined()) {
    Shape s{Dim(1), o.weight.shape(0)};
    for (int i = 2; i < terms.dim(); ++i) s.push_back(1);
    terms = std::move(terms) * o.weight.reshape(s, where);
  }
  Tensor loss = -terms.sum({1}, false, where);
  if (single) loss = loss.squeeze(0, where);
  placed("cross_entropy", where, [&] {
    TD_CHECK(o.reduction != Reduction::mean || loss.shape().is_symbolic() || loss.numel() > 0,
             Value,
             "x is {}: an empty batch has no mean loss\nSkip empty batches, or use "
             "Reduction::sum.",
             target.shape().to_string());
  });
  return reduced(std::move(loss), o.reduction, where);
}

int64_t reduction_code(Reduction r, const char* name, Where where) {
  placed(name, where, [&] {
    TD_CHECK(r != Reduction::batchmean, Value, "Reduction::batchmean is for kl_div\nUse mean.");
  });
  return static_cast<int64_t>(r);
}

// x [c] with one label is a batch of one.
Tensor class_loss(const OpDef& row, Tensor x, Tensor target, Tensor weight, const ClassLossAttrs& a,
                  Where where) {
  bool single = x.defined() && target.defined() && x.dim() == 1 && target.dim() == 0;
  if (single) {
    x = x.unsqueeze(0, where);
    target = target.unsqueeze(0, where);
  }
  Tensor y = call(row, &a, where, std::move(x), std::move(target), std::move(weight));
  return single && y.dim() == 1 ? y.squeeze(0, where) : y;
}

// A loss per element with one number besides.
Tensor row_of(const OpDef& row, const Tensor& x, const Tensor& target, double n, Where where) {
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(x, where), Operand(target, where), Operand(n)};
  apply(row, nullptr, ins, out, where);
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
        .errors({"x holds a number outside 0..1 (or NaN)\nGive it probabilities, or logits to "
                 "binary_cross_entropy_with_logits."})
        .doc("-(t log x + (1 - t) log(1 - x)) per element, logs cut off at -100.");
}  // namespace op

std::span<const OpDef* const> loss_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::softmax_cross_entropy, &op::softmax_cross_entropy_backward, &op::nll_loss,
      &op::nll_loss_backward,     &op::binary_cross_entropy,           &op::ctc_loss,
      &op::ctc_loss_backward};
  return kRows;
}

Tensor cross_entropy(Tensor x, Tensor target, CrossEntropyOptions options, Where where) {
  if (x.defined() && target.defined() && is_floating(target.dtype()))
    return probability_loss(loss_input(std::move(x), where), loss_input(std::move(target), where),
                            options, where);
  ClassLossAttrs a;
  a.reduction = reduction_code(options.reduction, "cross_entropy", where);
  a.ignore_index = options.ignore_index;
  a.label_smoothing = options.label_smoothing;
  return class_loss(op::softmax_cross_entropy, std::move(x), std::move(target),
                    std::move(options.weight), a, where);
}

Tensor nll_loss(Tensor x, Tensor target, NllLossOptions options, Where where) {
  ClassLossAttrs a;
  a.reduction = reduction_code(options.reduction, "nll_loss", where);
  a.ignore_index = options.ignore_index;
  return class_loss(op::nll_loss, std::move(x), std::move(target), std::move(options.weight), a,
                    where);
}

Tensor mse_loss(Tensor x, Tensor target, LossOptions options, Where where) {
  check_pair("mse_loss", x, target, where);
  return reduced((x - target).square(where), options.reduction, where);
}

Tensor l1_loss(Tensor x, Tensor target, LossOptions options, Where where) {
  check_pair("l1_loss", x, target, where);
  return reduced((x - target).abs(where), options.reduction, where);
}

Tensor smooth_l1_loss(Tensor x, Tensor target, SmoothL1LossOptions options, Where where) {
  check_pair("smooth_l1_loss", x, target, where);
  placed("smooth_l1_loss", where,
         [&] { TD_CHECK(options.beta >= 0, Value, "beta is {}, wants at least 0", options.beta); });
  if (options.beta == 0) return reduced((x - target).abs(where), options.reduction, where);
  return reduced(row_of(op::smooth_l1, x, target, options.beta, where), options.reduction, where);
}

Tensor huber_loss(Tensor x, Tensor target, HuberLossOptions options, Where where) {
  check_pair("huber_loss", x, target, where);
  placed("huber_loss", where, [&] {
    TD_CHECK(options.delta > 0, Value, "delta is {}, wants more than 0", options.delta);
  });
  return reduced(row_of(op::huber, x, target, options.delta, where), options.reduction, where);
}

Tensor binary_cross_entropy(Tensor x, Tensor target, BinaryCrossEntropyOptions options,
                            Where where) {
  x = loss_input(std::move(x), where);
  target = loss_input(std::move(target), where);
  // The kernel, which also checks x, walks dense arrays.
  if (x.defined()) x = contiguous(std::move(x), where);
  if (target.defined()) target = contiguous(std::move(target), where);
  Tensor y = call(op::binary_cross_entropy, nullptr, where, std::move(x), std::move(target));
  if (options.weight.defined()) y = std::move(y) * options.weight;
  return reduced(std::move(y), options.reduction, where);
}

Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target,
                                        BinaryCrossEntropyWithLogitsOptions options, Where where) {
  check_pair("binary_cross_entropy_with_logits", x, target, where);
  Tensor y;
  if (options.pos_weight.defined())
    y = (1.0 - target) * x - logsigmoid(x, where) * ((options.pos_weight - 1.0) * target + 1.0);
  else
    y = row_of(op::bce_with_logits, x, target, 1.0, where);
  if (options.weight.defined()) y = std::move(y) * options.weight;
  return reduced(std::move(y), options.reduction, where);
}

Tensor kl_div(Tensor x, Tensor target, KlDivOptions options, Where where) {
  check_pair("kl_div", x, target, where);
  Tensor y = options.log_target ? target.exp(where) * (target - x)
                                : xlogy(target, target, where) - target * x;
  return reduced(std::move(y), options.reduction, where);
}

Tensor poisson_nll_loss(Tensor x, Tensor target, PoissonNllLossOptions options, Where where) {
  check_pair("poisson_nll_loss", x, target, where);
  Tensor y =
      options.log_input ? x.exp(where) - target * x : x - target * log(x + options.eps, where);
  if (options.full) {
    Tensor t = clamp_min(target, 1.0);
    Tensor stirling = t * log(t) - t + log(t * 6.283185307179586) * 0.5;
    y = std::move(y) + tandem::where(target > 1.0, stirling, 0.0);
  }
  return reduced(std::move(y), options.reduction, where);
}

Tensor gaussian_nll_loss(Tensor x, Tensor target, Tensor var, GaussianNllLossOptions options,
                         Where where) {
  check_pair("gaussian_nll_loss", x, target, where);
  var = clamp_min(loss_input(std::move(var), where), options.eps, where);
  Tensor y = (log(var) + (x - target).square() / var) * 0.5;
  if (options.full) y = std::move(y) + 0.9189385332046727;
  return reduced(std::move(y), options.reduction, where);
}

Tensor hinge_embedding_loss(Tensor x, Tensor target, HingeEmbeddingLossOptions options,
                            Where where) {
  check_pair("hinge_embedding_loss", x, target, where);
  Tensor zero_or_margin = tandem::where(target != 1.0, clamp_min(options.margin - x, 0.0), 0.0);
  Tensor y = std::move(zero_or_margin) + tandem::where(target != -1.0, x, 0.0);
  return reduced(std::move(y), options.reduction, where);
}

Tensor soft_margin_loss(Tensor x, Tensor target, LossOptions options, Where where) {
  check_pair("soft_margin_loss", x, target, where);
  return reduced(-logsigmoid(target * x, where), options.reduction, where);
}

Tensor margin_ranking_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options,
                           Where where) {
  check_pair("margin_ranking_loss", x1, x2, where);
  Tensor y = clamp_min((x2 - x1) * loss_input(std::move(target), where) + options.margin, 0.0);
  return reduced(std::move(y), options.reduction, where);
}

Tensor cosine_embedding_loss(Tensor x1, Tensor x2, Tensor target, MarginOptions options,
                             Where where) {
  check_pair("cosine_embedding_loss", x1, x2, where);
  int64_t dim = x1.dim() - 1;
  Tensor both = (x1 * x2).sum({dim});
  Tensor sizes = (x1.square().sum({dim}) + 1e-12) * (x2.square().sum({dim}) + 1e-12);
  Tensor cosine = both / sqrt(sizes);
  Tensor y = tandem::where(target == 1, 1.0 - cosine, 0.0) +
             tandem::where(target == -1, clamp_min(cosine - options.margin, 0.0), 0.0);
  return reduced(std::move(y), options.reduction, where);
}

Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                           TripletMarginLossOptions options, Where where) {
  double p = options.p, eps = options.eps;
  Tensor near = pairwise_distance(anchor, positive, p, eps, false, where);
  Tensor far = pairwise_distance(anchor, negative, p, eps, false, where);
  if (options.swap)
    far = minimum(std::move(far), pairwise_distance(positive, negative, p, eps, false, where));
  Tensor y = clamp_min(near - far + options.margin, 0.0);
  return reduced(std::move(y), options.reduction, where);
}

Tensor cosine_similarity(Tensor x1, Tensor x2, int64_t dim, double eps, Where where) {
  int d = placed("cosine_similarity", where, [&] {
    return normalize_dim(dim, broadcast_shapes(x1.shape(), x2.shape()).rank());
  });
  // Counted from the right, so that a missing leading dimension of either does not matter.
  int64_t at = d - broadcast_shapes(x1.shape(), x2.shape()).rank();
  Tensor a = loss_input(std::move(x1), where), b = loss_input(std::move(x2), where);
  placed("cosine_similarity", where, [&] {
    TD_CHECK(-at <= a.dim() && -at <= b.dim(), Shape, "x1 is {}, x2 is {}: both want dimension {}",
             a.shape().to_string(), b.shape().to_string(), dim);
  });
  Tensor na = clamp_min(p_norm(a, 2, at, true), eps), nb = clamp_min(p_norm(b, 2, at, true), eps);
  return ((a / na) * (b / nb)).sum({at}, false, where);
}

Tensor pairwise_distance(Tensor x1, Tensor x2, double p, double eps, bool keepdim, Where where) {
  Tensor d = loss_input(std::move(x1), where) - loss_input(std::move(x2), where);
  placed("pairwise_distance", where,
         [&] { TD_CHECK(d.dim() >= 1, Shape, "x1 and x2 are scalars, vectors are wanted"); });
  return p_norm(d + eps, p, -1, keepdim);
}

Tensor normalize(Tensor x, double p, int64_t dim, double eps, Where where) {
  placed("normalize", where, [&] {
    normalize_dim(dim, x.dim());
    TD_CHECK(p > 0, Value, "p is {}, wants more than 0", p);
  });
  return x / clamp_min(p_norm(x, p, dim, true), eps);
}

}  // namespace tandem
