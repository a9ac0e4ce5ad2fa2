// SPDX-License-Identifier: Apache-2.0
// Batch, group and instance normalisation. Running statistics are passed in and returned as values;
// a layer stores them. Statistics are per channel, so vmap folds its batch into the channels.
#include "tandem/base/divisors.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/layout.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/norm_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::placed;

// ---- shape rules

void check_channels(const InferCall& c, int x, int input, const char* name) {
  if (!c.has(input)) return;
  const Spec &s = c.in[x], &v = c.in[input];
  TD_CHECK(v.rank() == 1 && dims_equal(v[0], s[1]), Shape,
           "{} is {}, x is {}: expected one value per channel ({})\n{}", name, v.shape.to_string(),
           s.shape.to_string(), s[1].to_string(),
           detail::layout_hint(s.shape, s.rank() - 2, v.rank() == 1 ? v[0] : Dim(0),
                               "Set num_features to x's dimension 1."));
  detail::check_affine_dtype(c, input, name, x);
}

void check_x(const Spec& x) {
  TD_CHECK(is_floating(x.dtype), DType,
           "x is {}, expected a floating dtype\nCast it with "
           ".to(float32).",
           to_string(x.dtype));
  TD_CHECK(x.rank() >= 2, Shape, "x is {}, expected [n, channels, ...]", x.shape.to_string());
}

void train_infer(InferCall& c) {
  const Spec& x = c.in[0];
  check_x(x);
  check_channels(c, 0, 1, "weight");
  check_channels(c, 0, 2, "bias");
  if (!x.shape.is_symbolic()) {
    int64_t n = x[0].value();
    for (int i = 2; i < x.rank(); ++i) n *= x[i].value();
    TD_CHECK(n != 1, Value,
             "x {} has one value per channel, training expects more\nUse a larger "
             "batch, or eval mode.",
             x.shape.to_string());
    TD_CHECK(n != 0, Value, "x {} is an empty batch: it has no mean\nSkip empty batches.",
             x.shape.to_string());
  }
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  for (int i = 1; i < 4; ++i) c.out[i] = Spec(accumulation_dtype(x.dtype), Shape{x[1]}, x.device);
}

void batch_norm_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  const Spec &g = c.in[0], &x = c.in[1];
  check_x(x);
  TD_CHECK(g.rank() == x.rank(), Shape, "gradient is {}, x is {}", g.shape.to_string(),
           x.shape.to_string());
  check_channels(c, 1, 2, "mean");
  check_channels(c, 1, 3, "rstd");
  check_channels(c, 1, 4, "weight");
  DType dtype = c.has(4) ? c.in[4].dtype : x.dtype;
  Shape want{x[1]}, none{0};
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  c.out[1] = Spec(dtype, a.weight ? want : none, x.device);
  c.out[2] = Spec(dtype, a.bias ? want : none, x.device);
}

void infer_infer(InferCall& c) {
  const Spec& x = c.in[0];
  check_x(x);
  check_channels(c, 0, 1, "running_mean");
  check_channels(c, 0, 2, "running_var");
  check_channels(c, 0, 3, "weight");
  check_channels(c, 0, 4, "bias");
  c.out[0] = Spec(x.dtype, x.shape, x.device);
}

// ---- bodies

IntList all_but_channels(const Tensor& x) {
  IntList r{0};
  for (int i = 2; i < x.dim(); ++i) r.push_back(i);
  return r;
}

// [c] as [1, c, 1, ...], to broadcast against x.
Tensor per_channel(const Tensor& v, const Tensor& x) {
  if (!v.defined()) return v;
  Shape s{Dim(1), v.shape(0)};
  for (int i = 2; i < x.dim(); ++i) s.push_back(1);
  return v.reshape(s);
}

void train_body(BodyCall& c) {
  const Tensor& in = c.in[0];
  Shape flat{in.shape(1)};
  IntList dims = all_but_channels(in);
  Tensor x = in.to(accumulation_dtype(in.dtype()));
  Tensor mean = x.mean(dims, true);
  Tensor d = x - mean;
  Tensor var = d.square().mean(dims, true);
  Tensor rstd = (var + c.get_attrs<NormAttrs>().eps).rsqrt();
  Tensor y = std::move(d) * rstd;
  if (c.in[1].defined()) y = std::move(y) * per_channel(c.in[1], in);
  if (c.in[2].defined()) y = std::move(y) + per_channel(c.in[2], in);
  c.out[0] = y.to(in.dtype());
  c.out[1] = mean.reshape(flat);
  c.out[2] = var.reshape(flat);
  c.out[3] = rstd.reshape(flat);
}

void batch_norm_backward_body(BodyCall& c) {
  const auto& a = c.get_attrs<NormBackwardAttrs>();
  const Tensor &in = c.in[1], &w = c.in[4];
  IntList dims = all_but_channels(in);
  DType wide = accumulation_dtype(in.dtype()), wd = w.defined() ? w.dtype() : in.dtype();
  Tensor g = c.in[0].to(wide), rstd = per_channel(c.in[3], in);
  Tensor xhat = (in.to(wide) - per_channel(c.in[2], in)) * rstd;
  Tensor sum_g = g.sum(dims, true), sum_gx = (g * xhat).sum(dims, true);
  Tensor n = detail::count_of(in, dims);
  Tensor scale = w.defined() ? rstd * per_channel(w, in) : rstd;
  c.out[0] = ((g - sum_g / n - xhat * (sum_gx / n)) * scale).to(in.dtype());
  Shape flat{in.shape(1)};
  c.out[1] = a.weight ? sum_gx.reshape(flat).to(wd) : zeros({0}, wd);
  c.out[2] = a.bias ? sum_g.reshape(flat).to(wd) : zeros({0}, wd);
}

void infer_body(BodyCall& c) {
  const Tensor& in = c.in[0];
  DType wide = accumulation_dtype(in.dtype());
  Tensor scale = (c.in[2].to(wide) + c.get_attrs<NormAttrs>().eps).rsqrt();
  if (c.in[3].defined()) scale = std::move(scale) * c.in[3];
  Tensor shift = -(c.in[1] * scale);
  if (c.in[4].defined()) shift = std::move(shift) + c.in[4];
  c.out[0] = (in.to(wide) * per_channel(scale, in) + per_channel(shift, in)).to(in.dtype());
}

// ---- derivative

// Contributions of the gradients of mean, var and rstd to x's: dmean/dx = 1/n, dvar/dx = 2 (x -
// mean) / n, drstd/dx = -rstd^3 (x - mean) / n.
Tensor through_stats(const VjpCall& c, const Tensor& mean, const Tensor& rstd) {
  const Tensor &gm = c.grads[1], &gv = c.grads[2], &gr = c.grads[3], &x = c.in(0);
  if (!gm.defined() && !gv.defined() && !gr.defined()) return {};
  Tensor n = detail::count_of(x, all_but_channels(x)), derivative, r;
  if (gv.defined()) derivative = gv * 2.0;
  if (gr.defined()) {
    Tensor s = -(gr * rstd * rstd.square());
    derivative = derivative.defined() ? std::move(derivative) + s : std::move(s);
  }
  if (derivative.defined())
    r = (x.to(rstd.dtype()) - per_channel(mean, x)) * per_channel(derivative / n, x);
  if (gm.defined()) {
    Tensor t = per_channel(gm / n, x).expand(x.shape());
    r = r.defined() ? std::move(r) + t : std::move(t);
  }
  return r.to(x.dtype());
}

void train_vjp(VjpCall& c) {
  SourceLocation loc = c.loc();
  Tensor mean = c.out(1), rstd = c.out(3);
  if (c.grad().defined()) {
    NormBackwardAttrs b{0, c.has(1) && c.needs(1), c.has(2) && c.needs(2)};
    Tensor w = c.has(1) ? c.in(1) : Tensor(), out[kMaxOpOuts];
    Operand ins[] = {Operand(c.grad(), loc), Operand(c.in(0), loc), Operand(mean, loc),
                     Operand(rstd, loc), Operand(w, loc)};
    apply(op::batch_norm_backward, &b, ins, out, loc);
    if (c.needs(0)) c.results[0] = std::move(out[0]);
    if (b.weight) c.results[1] = std::move(out[1]);
    if (b.bias) c.results[2] = out[2].to(c.in_dtype(2), loc);
  }
  if (!c.needs(0)) return;
  Tensor more = through_stats(c, mean, rstd);
  if (!more.defined()) return;
  c.results[0] = c.results[0].defined() ? std::move(c.results[0]) + more : std::move(more);
}

// ---- vmap

// [B, n, c, ...] as [n, B * c, ...] and [B, c] as [B * c].
Tensor fold_input(const BatchCall& c, int i) {
  if (!c.has(i)) return {};
  Tensor t = detail::with_batch(c, i);
  if (c.rank(i) == 1) return detail::merge_dims(t, 0, c.node.loc);
  return detail::merge_dims(t.transpose(0, 1, c.node.loc), 1, c.node.loc);
}

void norm_batch(BatchCall& c) {
  const OpDef& row = *c.node.op;
  SourceLocation loc = c.node.loc;
  Tensor out[kMaxOpOuts];
  std::vector<Operand> ins;
  for (int i = 0; i < row.n_in; ++i) ins.emplace_back(fold_input(c, i), loc);
  detail::call_again(c, c.node.attrs.get(), ins, out);
  Dim channels = c.node.in[row.n_in == 5 && c.rank(1) > 1 ? 1 : 0].shape[1];
  for (int i = 0; i < row.n_out; ++i) {
    const Tensor& y = out[i];
    if (!y.defined()) continue;
    if (y.dim() > 1)
      c.out[i] = detail::split_dim(y, 1, c.batch_size, channels, loc).transpose(0, 1, loc);
    else if (y.shape(0) == Dim(0))
      c.out[i] = y.reshape({c.batch_size, Dim(0)}, loc);
    else
      c.out[i] = detail::split_dim(y, 0, c.batch_size, channels, loc);
  }
}

// ---- functions

void check_given(const Tensor& x, const Tensor& mean, const Tensor& var) {
  TD_CHECK(x.dim() >= 2, Shape, "x is {}, expected [n, channels, ...]", x.shape().to_string());
  TD_CHECK(mean.defined() == var.defined(), Value,
           "running_mean and running_var must be passed together or not at all");
}

// (1 - momentum) * old + momentum * fresh, in old's dtype.
Tensor moved(const Tensor& old, const Tensor& fresh, double momentum) {
  if (!old.defined()) return {};
  NoGradGuard no_grad;
  return (old * (1.0 - momentum) + fresh.detach() * momentum).to(old.dtype());
}

// The unbiased variance of n values from the biased one.
Tensor unbiased(const Tensor& var, const Tensor& x, const IntList& dims) {
  NoGradGuard no_grad;
  Tensor n = detail::count_of(x, dims);
  return var.detach() * (n / (n - 1.0));
}

Tensor infer_form(Tensor x, Tensor mean, Tensor var, Tensor w, Tensor b, double eps,
                  SourceLocation loc) {
  NormAttrs a{0, eps};
  return call(op::batch_norm_infer, &a, loc, std::move(x), std::move(mean), std::move(var),
              std::move(w), std::move(b));
}

Tensor scale_and_shift(Tensor y, const Tensor& w, const Tensor& b) {
  DType t = y.dtype();
  // Named first: the compiler may evaluate arguments in any order.
  Tensor scale = w.defined() ? per_channel(w, y) : Tensor();
  Tensor shift = b.defined() ? per_channel(b, y) : Tensor();
  if (scale.defined()) y = std::move(y) * scale;
  if (shift.defined()) y = std::move(y) + shift;
  return y.to(t);
}

void check_affine(const Tensor& v, const char* name, const Tensor& x) {
  TD_CHECK(!v.defined() || (v.dim() == 1 && dims_equal(v.shape(0), x.shape(1))), Shape,
           "{} is {}, x is {}: expected one value per channel", name, v.shape().to_string(),
           x.shape().to_string());
}

}  // namespace

namespace op {
constinit const OpDef batch_norm_train =
    composite("batch_norm_train", {"x", "w?", "b?"}, fields<NormAttrs>(), train_body)
        .outputs({"y", "mean", "var", "rstd!"})
        .infer(train_infer)
        .vjp(train_vjp, 3, 10)
        .batch(norm_batch)
        .autocast(Autocast::f32_inside)
        .flops(detail::norm_flops)
        .flag(kBatchNorm)
        .doc("x [n, c, ...] normalised per channel by its own mean and biased variance.");
constinit const OpDef batch_norm_backward =
    composite("batch_norm_backward", {"gy", "x", "mean", "rstd", "w?"}, fields<NormBackwardAttrs>(),
              batch_norm_backward_body)
        .outputs({"gx", "gw", "gb"})
        .infer(batch_norm_backward_infer)
        .batch(norm_batch)
        .flag(kBatchNorm)
        .doc("Gradients of batch_norm_train with respect to x, w and b.");
constinit const OpDef batch_norm_infer =
    composite("batch_norm_infer", {"x", "mean", "var", "w?", "b?"}, fields<NormAttrs>(), infer_body)
        .infer(infer_infer)
        .batch(norm_batch)
        .autocast(Autocast::f32_inside)
        .flops(detail::norm_flops)
        .flag(kBatchNorm)
        .onnx("BatchNormalization")
        .doc("x [n, c, ...] normalised per channel by given statistics.");
}  // namespace op

BatchNormStats batch_norm_stats(Tensor x, Tensor w, Tensor b, double eps, SourceLocation loc) {
  return detail::named("batch_norm_stats", loc, [&]() -> BatchNormStats {
    NormAttrs a{0, eps};
    Tensor out[kMaxOpOuts];
    Operand ins[] = {Operand(std::move(x), loc), Operand(std::move(w), loc),
                     Operand(std::move(b), loc)};
    apply(op::batch_norm_train, &a, ins, out, loc);
    return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  });
}

BatchNormResult batch_norm(Tensor x, Tensor running_mean, Tensor running_var, Tensor w, Tensor b,
                           bool training, double momentum, double eps, SourceLocation loc) {
  return detail::named("batch_norm", loc, [&]() -> BatchNormResult {
    placed("batch_norm", loc, [&] { check_given(x, running_mean, running_var); });
    if (!training && running_mean.defined()) {
      Tensor y =
          infer_form(std::move(x), running_mean, running_var, std::move(w), std::move(b), eps, loc);
      return {std::move(y), std::move(running_mean), std::move(running_var)};
    }
    IntList dims = all_but_channels(x);
    BatchNormStats s = batch_norm_stats(x, std::move(w), std::move(b), eps, loc);
    BatchNormResult r{std::move(s.y), {}, {}};
    if (!running_mean.defined()) return r;
    placed("batch_norm", loc, [&] {
      check_affine(running_mean, "running_mean", x);
      check_affine(running_var, "running_var", x);
    });
    r.running_mean = moved(running_mean, s.mean, momentum);
    r.running_var = moved(running_var, unbiased(s.var, x, dims), momentum);
    return r;
  });
}

Tensor group_norm(Tensor x, int64_t num_groups, Tensor w, Tensor b, double eps,
                  SourceLocation loc) {
  placed("group_norm", loc, [&] {
    TD_CHECK(x.dim() >= 2, Shape, "x is {}, expected [n, channels, ...]", x.shape().to_string());
    TD_CHECK(num_groups >= 1, Value, "num_groups is {}, expected at least 1", num_groups);
    Dim c = x.shape(1);
    TD_CHECK(c.is_symbolic() || c.value() % num_groups == 0, Shape,
             "{} channels do not divide into {} groups\n{}", c.to_string(), num_groups,
             divisor_hint("num_groups", num_groups, c.value()));
    check_affine(w, "weight", x);
    check_affine(b, "bias", x);
  });
  Shape shape = x.shape();
  Dim inner = detail::floor_div(shape[1], num_groups) * detail::product(shape, 2, shape.rank());
  Tensor flat = x.reshape({shape[0], Dim(num_groups), inner}, loc);
  Tensor y = layer_norm(std::move(flat), {inner}, {}, {}, eps, loc);
  return scale_and_shift(y.reshape(shape, loc), w, b);
}

BatchNormResult instance_norm(Tensor x, Tensor running_mean, Tensor running_var, Tensor w, Tensor b,
                              bool use_input_stats, double momentum, double eps,
                              SourceLocation loc) {
  placed("instance_norm", loc, [&] {
    check_given(x, running_mean, running_var);
    TD_CHECK(x.dim() >= 3, Shape, "x is {}, expected [n, channels, ...] with spatial dimensions",
             x.shape().to_string());
    TD_CHECK(use_input_stats || running_mean.defined(), Value,
             "use_input_stats is false and no running statistics are given");
    check_affine(w, "weight", x);
    check_affine(b, "bias", x);
    check_affine(running_mean, "running_mean", x);
    check_affine(running_var, "running_var", x);
  });
  if (!use_input_stats) {
    Tensor y =
        infer_form(std::move(x), running_mean, running_var, std::move(w), std::move(b), eps, loc);
    return {std::move(y), std::move(running_mean), std::move(running_var)};
  }
  Shape shape = x.shape();
  int rank = shape.rank();
  Dim plane = detail::product(shape, 2, rank);
  placed("instance_norm", loc, [&] {
    TD_CHECK(!(plane == Dim(1)), Value, "x {} has one value per channel, statistics expect more",
             shape.to_string());
  });
  Tensor flat = x.reshape({shape[0], shape[1], plane}, loc);
  Tensor y = layer_norm(flat, {plane}, {}, {}, eps, loc);
  BatchNormResult r{scale_and_shift(y.reshape(shape, loc), w, b), {}, {}};
  if (!running_mean.defined()) return r;
  NoGradGuard no_grad;
  Tensor wide = flat.detach().to(accumulation_dtype(x.dtype()));
  r.running_mean = moved(running_mean, wide.mean({0, 2}), momentum);
  Tensor var = (wide - wide.mean({2}, true)).square().mean({2}).mean({0});
  r.running_var = moved(running_var, unbiased(var, flat, {2}), momentum);
  return r;
}

Tensor local_response_norm(Tensor x, int64_t size, double alpha, double beta, double k,
                           SourceLocation loc) {
  placed("local_response_norm", loc, [&] {
    TD_CHECK(x.dim() >= 3, Shape, "x is {}, expected [n, channels, ...] with spatial dimensions",
             x.shape().to_string());
    TD_CHECK(size >= 1, Value, "size is {}, expected at least 1", size);
    TD_CHECK(is_floating(x.dtype()), DType,
             "x is {}, expected a floating dtype\nCast it with .to(float32).",
             to_string(x.dtype()));
  });
  Shape planes{x.shape(0), Dim(1), x.shape(1), detail::product(x.shape(), 2, x.dim())};
  Tensor squares =
      pad(square(x).reshape(planes, loc), {0, 0, size / 2, (size - 1) / 2}, "constant", 0, loc);
  Tensor mean = avg_pool2d(std::move(squares), {size, 1}, {1}, {0}, false, true, 0, loc);
  return x / pow(mean.reshape(x.shape(), loc) * alpha + k, beta);
}

}  // namespace tandem
