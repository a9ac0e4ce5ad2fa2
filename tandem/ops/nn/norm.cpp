// SPDX-License-Identifier: Apache-2.0
// The functions of norm.h and the rows layer_norm and rms_norm. Their bodies define what a
// backend's fused kernels must compute. Statistics are hidden outputs on the tape, so higher-order
// derivatives flow through them: each vjp adds the gradients that arrive at mean and rstd.
#include "tandem/ops/nn/norm.h"

#include "tandem/ops/nn/norm_internal.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

using detail::placed;
using detail::reduce_to;

// ---- shape rules

// Statistics of x: the last `dims` sizes become 1.
Shape stats_shape(const Shape& x, int64_t dims) {
  Shape s = x;
  for (int i = x.rank() - static_cast<int>(dims); i < x.rank(); ++i) s[i] = 1;
  return s;
}

Shape last_dims(const Shape& x, int64_t dims) {
  Shape s;
  for (int i = x.rank() - static_cast<int>(dims); i < x.rank(); ++i) s.push_back(x[i]);
  return s;
}

void check_affine(const InferCall& c, int input, const char* name, const Shape& want) {
  if (!c.has(input)) return;
  const Spec& w = c.in[input];
  bool same = w.rank() == want.rank();
  for (int i = 0; same && i < want.rank(); ++i) same = dims_equal(w[i], want[i]);
  TD_CHECK(same, Shape, "{} is {}, expected {}", name, w.shape.to_string(), want.to_string());
  detail::check_affine_dtype(c, input, name);
}

void check_norm(const InferCall& c, int x, int64_t dims) {
  const Spec& s = c.in[x];
  TD_CHECK(is_floating(s.dtype), DType,
           "x is {}, expected a floating dtype\nCast it with "
           ".to(float32).",
           to_string(s.dtype));
  TD_CHECK(dims >= 1 && dims <= s.rank(), Shape,
           "x is {}, statistics over its last {} dimensions were requested", s.shape.to_string(),
           dims);
}

void layer_norm_infer(InferCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const Spec& x = c.in[0];
  check_norm(c, 0, a.dims);
  check_affine(c, 1, "weight", last_dims(x.shape, a.dims));
  check_affine(c, 2, "bias", last_dims(x.shape, a.dims));
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  for (int i = 1; i < c.op.n_out; ++i)
    c.out[i] = Spec(accumulation_dtype(x.dtype), stats_shape(x.shape, a.dims), x.device);
}

void norm_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  const Spec &g = c.in[0], &x = c.in[1];
  check_norm(c, 1, a.dims);
  TD_CHECK(g.rank() == x.rank(), Shape, "gradient is {}, x is {}", g.shape.to_string(),
           x.shape.to_string());
  int w = c.op.n_in - 1;
  check_affine(c, w, "weight", last_dims(x.shape, a.dims));
  DType dtype = c.has(w) ? c.in[w].dtype : x.dtype;
  Shape want = last_dims(x.shape, a.dims), none{0};
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  c.out[1] = Spec(dtype, a.weight ? want : none, x.device);
  if (c.op.n_out > 2) c.out[2] = Spec(dtype, a.bias ? want : none, x.device);
}

// ---- bodies

IntList last_dims(const Tensor& x, int64_t dims) {
  IntList r;
  for (int64_t i = x.dim() - dims; i < x.dim(); ++i) r.push_back(i);
  return r;
}

Tensor affine(Tensor y, const Tensor& w, const Tensor& b) {
  if (w.defined()) y = std::move(y) * w;
  if (b.defined()) y = std::move(y) + b;
  return y;
}

void layer_norm_body(BodyCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const Tensor& in = c.in[0];
  IntList dims = last_dims(in, a.dims);
  Tensor x = in.to(accumulation_dtype(in.dtype()));
  Tensor mean = x.mean(dims, true);
  Tensor d = x - mean;
  Tensor rstd = (d.square().mean(dims, true) + a.eps).rsqrt();
  c.out[0] = affine(std::move(d) * rstd, c.in[1], c.in[2]).to(in.dtype());
  c.out[1] = std::move(mean);
  c.out[2] = std::move(rstd);
}

void rms_norm_body(BodyCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const Tensor& in = c.in[0];
  Tensor x = in.to(accumulation_dtype(in.dtype()));
  Tensor rstd = (x.square().mean(last_dims(in, a.dims), true) + a.eps).rsqrt();
  c.out[0] = affine(std::move(x) * rstd, c.in[1], {}).to(in.dtype());
  c.out[1] = std::move(rstd);
}

// Sum over dimensions [first, rank - dims), those not covered by the statistics.
Tensor over_rows(const Tensor& t, int first, int64_t dims) {
  IntList r;
  for (int i = first; i < t.dim() - static_cast<int>(dims); ++i) r.push_back(i);
  return r.empty() ? t : t.sum(r);
}

// The body of layer_norm_backward (mean given) and rms_norm_backward (mean undefined). Leading
// dimensions before `first` stay in the gradients of weight and bias.
void norm_grads(const NormBackwardAttrs& a, const Tensor& gy, const Tensor& in, const Tensor& mean,
                const Tensor& rstd, const Tensor& w, int first, Tensor* out) {
  IntList dims = last_dims(in, a.dims);
  DType wide = accumulation_dtype(in.dtype()), wd = w.defined() ? w.dtype() : in.dtype();
  Tensor x = in.to(wide), g = gy.to(wide);
  Tensor xhat = (mean.defined() ? x - mean : x) * rstd;
  Tensor gw = w.defined() ? g * w : g;
  Tensor gx = gw - xhat * (gw * xhat).mean(dims, true);
  if (mean.defined()) gx = std::move(gx) - gw.mean(dims, true);
  out[0] = (std::move(gx) * rstd).to(in.dtype());
  Shape none;
  for (int i = 0; i < first; ++i) none.push_back(in.shape(i));
  none.push_back(0);
  auto unwanted = [&] { return zeros(none, wd); };
  out[1] = a.weight ? over_rows(g * xhat, first, a.dims).to(wd) : unwanted();
  if (mean.defined()) out[2] = a.bias ? over_rows(g, first, a.dims).to(wd) : unwanted();
}

void layer_norm_backward_body(BodyCall& c) {
  norm_grads(c.get_attrs<NormBackwardAttrs>(), c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], 0,
             c.out);
}
void rms_norm_backward_body(BodyCall& c) {
  norm_grads(c.get_attrs<NormBackwardAttrs>(), c.in[0], c.in[1], {}, c.in[2], c.in[3], 0, c.out);
}

// ---- derivatives

void add_into(Tensor& sum, Tensor t) { sum = sum.defined() ? std::move(sum) + t : std::move(t); }

// Contributions of the gradients of mean and rstd to that of x, n values per statistic: dmean/dx =
// 1/n, drstd/dx = -rstd^3 (x - mean) / n.
Tensor through_stats(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& gmean,
                     const Tensor& grstd, int64_t dims) {
  Tensor r, count = detail::count_of(x, last_dims(x, dims));
  if (grstd.defined()) {
    Tensor d = mean.defined() ? x.to(rstd.dtype()) - mean : x.to(rstd.dtype());
    r = d * (grstd * rstd * rstd.square() / -count);
  }
  if (gmean.defined()) add_into(r, (gmean / count).expand(x.shape()));
  return r.defined() ? r.to(x.dtype()) : r;
}

void layer_norm_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  SourceLocation loc = c.loc();
  const Tensor& x = c.in(0);
  Tensor mean = c.out(1), rstd = c.out(2);
  if (c.grad().defined()) {
    NormBackwardAttrs b{a.dims, c.has(1) && c.needs(1), c.has(2) && c.needs(2)};
    Tensor w = c.has(1) ? c.in(1) : Tensor(), out[kMaxOpOuts];
    Operand ins[] = {Operand(c.grad(), loc), Operand(x, loc), Operand(mean, loc),
                     Operand(rstd, loc), Operand(w, loc)};
    apply(op::layer_norm_backward, &b, ins, out, loc);
    if (c.needs(0)) c.results[0] = std::move(out[0]);
    if (b.weight) c.results[1] = std::move(out[1]);
    if (b.bias) c.results[2] = out[2].to(c.in_dtype(2), loc);
  }
  Tensor more = through_stats(x, mean, rstd, c.grads[1], c.grads[2], a.dims);
  if (c.needs(0) && more.defined()) add_into(c.results[0], std::move(more));
}

void rms_norm_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  SourceLocation loc = c.loc();
  const Tensor& x = c.in(0);
  Tensor rstd = c.out(1);
  if (c.grad().defined()) {
    NormBackwardAttrs b{a.dims, c.has(1) && c.needs(1), false};
    Tensor w = c.has(1) ? c.in(1) : Tensor(), out[kMaxOpOuts];
    Operand ins[] = {Operand(c.grad(), loc), Operand(x, loc), Operand(rstd, loc), Operand(w, loc)};
    apply(op::rms_norm_backward, &b, ins, out, loc);
    if (c.needs(0)) c.results[0] = std::move(out[0]);
    if (b.weight) c.results[1] = std::move(out[1]);
  }
  Tensor more = through_stats(x, {}, rstd, {}, c.grads[1], a.dims);
  if (c.needs(0) && more.defined()) add_into(c.results[0], std::move(more));
}

// ---- vmap: statistics ignore leading dimensions; a batch of weights is applied outside

Tensor affine_batched(const BatchCall& c, int i, int rank) { return detail::with_rank(c, i, rank); }

void layer_norm_batch(BatchCall& c) {
  const auto& a = c.get_attrs<NormAttrs>();
  const OpDef& row = *c.node.op;
  SourceLocation loc = c.node.loc;
  Tensor x = detail::with_batch(c, 0), w = c.n_in() > 1 ? c.in[1] : Tensor(),
         b = c.n_in() > 2 ? c.in[2] : Tensor();
  bool outside = (c.has(1) && c.batched[1]) || (c.has(2) && c.batched[2]);
  Tensor out[kMaxOpOuts], none;
  std::vector<Operand> ins;
  ins.emplace_back(x, loc);
  ins.emplace_back(outside ? none : w, loc);
  if (row.n_in > 2) ins.emplace_back(outside ? none : b, loc);
  detail::call_again(c, &a, ins, out);
  for (int i = 0; i < row.n_out; ++i) c.out[i] = std::move(out[i]);
  if (!outside) return;
  if (w.defined()) w = affine_batched(c, 1, c.rank(0));
  if (b.defined()) b = affine_batched(c, 2, c.rank(0));
  DType t = c.out[0].dtype();
  c.out[0] = affine(std::move(c.out[0]), w, b).to(t);
}

void norm_backward_batch(BatchCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  bool layer = c.node.op == &op::layer_norm_backward;
  int w = c.node.op->n_in - 1, rank = c.rank(1);
  Tensor weight = c.has(w) ? detail::with_rank(c, w, rank) : Tensor();
  norm_grads(a, detail::with_batch(c, 0), detail::with_batch(c, 1),
             layer ? detail::with_batch(c, 2) : Tensor(), detail::with_batch(c, layer ? 3 : 2),
             weight, 1, c.out);
}

// Throws unless x ends with `normalized_shape`.
void check_normalized(const Tensor& x, const IntList& shape) {
  int d = shape.rank();
  bool ends = d >= 1 && d <= x.dim();
  for (int i = 0; ends && i < d; ++i) ends = dims_equal(x.shape(x.dim() - d + i), shape[i]);
  TD_CHECK(ends, Shape, "normalized_shape is {}, x is {}: its last dimensions must be equal to it",
           shape.to_string(), x.shape().to_string());
}

}  // namespace

namespace op {
constinit const OpDef layer_norm =
    composite("layer_norm", {"x", "w?", "b?"}, fields<NormAttrs>(), layer_norm_body)
        .outputs({"y", "mean!", "rstd!"})
        .infer(layer_norm_infer)
        .vjp(layer_norm_vjp, 3, 6)
        .batch(layer_norm_batch)
        .autocast(Autocast::f32_inside)
        .flops(detail::norm_flops)
        .onnx("LayerNormalization")
        .doc("(x - mean) / sqrt(var + eps) * w + b over the last dimensions.");
constinit const OpDef layer_norm_backward =
    composite("layer_norm_backward", {"gy", "x", "mean", "rstd", "w?"}, fields<NormBackwardAttrs>(),
              layer_norm_backward_body)
        .outputs({"gx", "gw", "gb"})
        .infer(norm_backward_infer)
        .batch(norm_backward_batch)
        .doc("Gradients of layer_norm with respect to x, w and b.");
constinit const OpDef rms_norm =
    composite("rms_norm", {"x", "w?"}, fields<NormAttrs>(), rms_norm_body)
        .outputs({"y", "rstd!"})
        .infer(layer_norm_infer)
        .vjp(rms_norm_vjp, 3, 2)
        .batch(layer_norm_batch)
        .autocast(Autocast::f32_inside)
        .flops(detail::norm_flops)
        .doc("x / sqrt(mean(x^2) + eps) * w over the last dimensions.");
constinit const OpDef rms_norm_backward =
    composite("rms_norm_backward", {"gy", "x", "rstd", "w?"}, fields<NormBackwardAttrs>(),
              rms_norm_backward_body)
        .outputs({"gx", "gw"})
        .infer(norm_backward_infer)
        .batch(norm_backward_batch)
        .doc("Gradients of rms_norm with respect to x and w.");
}  // namespace op

std::span<const OpDef* const> norm_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::layer_norm,       &op::layer_norm_backward, &op::rms_norm,        &op::rms_norm_backward,
      &op::batch_norm_train, &op::batch_norm_backward, &op::batch_norm_infer};
  return kRows;
}

Tensor layer_norm(Tensor x, IntList normalized_shape, Tensor w, Tensor b, double eps,
                  SourceLocation loc) {
  placed("layer_norm", loc, [&] { check_normalized(x, normalized_shape); });
  NormAttrs a{normalized_shape.rank(), eps};
  return call(op::layer_norm, &a, loc, std::move(x), std::move(w), std::move(b));
}

Tensor rms_norm(Tensor x, IntList normalized_shape, Tensor w, std::optional<double> eps,
                SourceLocation loc) {
  placed("rms_norm", loc, [&] { check_normalized(x, normalized_shape); });
  double least = x.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  NormAttrs a{normalized_shape.rank(), eps.value_or(least)};
  return call(op::rms_norm, &a, loc, std::move(x), std::move(w));
}

}  // namespace tandem
