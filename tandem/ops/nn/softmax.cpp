// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax. The bodies define what a backend's fused kernel must compute; the
// *_backward rows have no derivative rule: their bodies are differentiated.
#include "tandem/ops/nn/softmax.h"

#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

void softmax_infer(InferCall& c) {
  const Spec& x = c.in[0];
  TD_CHECK(is_floating(x.dtype), DType, "x is {}, expected a floating dtype\nPass dtype=float32.",
           to_string(x.dtype));
  normalize_dim(c.get_attrs<SoftmaxAttrs>().dim, x.rank());
  c.out[0] = x;
  c.out[0].contents = nullptr;
}

void softmax_backward_infer(InferCall& c) {
  const Spec &g = c.in[0], &y = c.in[1];
  TD_CHECK(g.rank() == y.rank(), Shape, "gradient is {}, result {}", g.shape.to_string(),
           y.shape.to_string());
  for (int i = 0; i < y.rank(); ++i)
    TD_CHECK(dims_equal(g[i], y[i]), Shape, "gradient is {}, result {}", g.shape.to_string(),
             y.shape.to_string());
  normalize_dim(c.get_attrs<SoftmaxAttrs>().dim, y.rank());
  c.out[0] = Spec(y.dtype, y.shape, y.device);
}

bool empty_line(const Tensor& x, int64_t dim) { return x.shape(dim) == Dim(0); }

void softmax_body(BodyCall& b) {
  int64_t dim = b.get_attrs<SoftmaxAttrs>().dim;
  const Tensor& in = b.in[0];
  if (empty_line(in, dim)) {
    b.out[0] = in;
    return;
  }
  Tensor x = in.to(accumulation_dtype(in.dtype()));
  Tensor e = (x - x.amax({dim}, true)).exp();
  Tensor sum = e.sum({dim}, true);
  b.out[0] = (std::move(e) / sum).to(in.dtype());
}

void log_softmax_body(BodyCall& b) {
  int64_t dim = b.get_attrs<SoftmaxAttrs>().dim;
  const Tensor& in = b.in[0];
  if (empty_line(in, dim)) {
    b.out[0] = in;
    return;
  }
  Tensor x = in.to(accumulation_dtype(in.dtype()));
  Tensor d = x - x.amax({dim}, true);
  Tensor lse = d.exp().sum({dim}, true).log();
  b.out[0] = (std::move(d) - lse).to(in.dtype());
}

void softmax_backward_body(BodyCall& b) {
  int64_t dim = b.get_attrs<SoftmaxAttrs>().dim;
  DType t = b.in[1].dtype();
  Tensor g = b.in[0].to(accumulation_dtype(t)), y = b.in[1].to(accumulation_dtype(t));
  Tensor gy = g * y;
  b.out[0] = (gy - y * gy.sum({dim}, true)).to(t);
}

void log_softmax_backward_body(BodyCall& b) {
  int64_t dim = b.get_attrs<SoftmaxAttrs>().dim;
  DType t = b.in[1].dtype();
  Tensor g = b.in[0].to(accumulation_dtype(t)), y = b.in[1].to(accumulation_dtype(t));
  b.out[0] = (g - y.exp() * g.sum({dim}, true)).to(t);
}

void softmax_vjp(VjpCall& c) {
  c.results[0] = softmax_backward(c.grad(), c.out(0), c.get_attrs<SoftmaxAttrs>().dim, c.loc());
}
void log_softmax_vjp(VjpCall& c) {
  c.results[0] = log_softmax_backward(c.grad(), c.out(0), c.get_attrs<SoftmaxAttrs>().dim, c.loc());
}

// The same row, one dimension further back.
void softmax_batch(BatchCall& c) {
  SoftmaxAttrs a{normalize_dim(c.get_attrs<SoftmaxAttrs>().dim, c.rank(0)) + 1};
  const OpDef& op = *c.node.op;
  SourceLocation loc = c.node.loc;
  c.out[0] = op.n_in == 1 ? call(op, &a, loc, c.in[0])
                          : call(op, &a, loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}

double softmax_flops(const InferCall& c) {
  return 5.0 * static_cast<double>(c.in[0].shape.numel().value());
}

Tensor along(const OpDef& row, Tensor x, int64_t dim, std::optional<DType> dtype,
             SourceLocation loc) {
  if (!x.defined()) return call(row, nullptr, loc, std::move(x));
  if (dtype && x.dtype() != *dtype) x = x.to(*dtype, loc);
  bool scalar = x.dim() == 0;
  if (scalar) x = x.reshape({1}, loc);
  SoftmaxAttrs a{detail::placed(row.name, loc, [&] { return normalize_dim(dim, x.dim()); })};
  Tensor y = call(row, &a, loc, std::move(x));
  return scalar ? y.reshape(Shape(), loc) : y;
}

}  // namespace

namespace op {
constinit const OpDef softmax = composite("softmax", {"x"}, fields<SoftmaxAttrs>(), softmax_body)
                                    .infer(softmax_infer)
                                    .vjp(softmax_vjp, 0, 1)
                                    .batch(softmax_batch)
                                    .autocast(Autocast::f32_inside)
                                    .flops(softmax_flops)
                                    .onnx("Softmax")
                                    .doc("exp(x) / sum(exp(x)) along a dimension.");
constinit const OpDef softmax_backward =
    composite("softmax_backward", {"gy", "y"}, fields<SoftmaxAttrs>(), softmax_backward_body)
        .outputs({"gx"})
        .infer(softmax_backward_infer)
        .batch(softmax_batch)
        .doc("Gradient of softmax from its result: y * (gy - sum(gy * y)).");
constinit const OpDef log_softmax =
    composite("log_softmax", {"x"}, fields<SoftmaxAttrs>(), log_softmax_body)
        .infer(softmax_infer)
        .vjp(log_softmax_vjp, 0, 1)
        .batch(softmax_batch)
        .autocast(Autocast::f32_inside)
        .flops(softmax_flops)
        .onnx("LogSoftmax")
        .doc("x - log(sum(exp(x))) along a dimension.");
constinit const OpDef log_softmax_backward =
    composite("log_softmax_backward", {"gy", "y"}, fields<SoftmaxAttrs>(),
              log_softmax_backward_body)
        .outputs({"gx"})
        .infer(softmax_backward_infer)
        .batch(softmax_batch)
        .doc("Gradient of log_softmax from its result: gy - exp(y) * sum(gy).");
}  // namespace op

std::span<const OpDef* const> softmax_rows() {
  static constexpr const OpDef* kRows[] = {&op::softmax, &op::softmax_backward, &op::log_softmax,
                                           &op::log_softmax_backward};
  return kRows;
}

Tensor softmax(Tensor x, int64_t dim, std::optional<DType> dtype, SourceLocation loc) {
  return along(op::softmax, std::move(x), dim, dtype, loc);
}
Tensor log_softmax(Tensor x, int64_t dim, std::optional<DType> dtype, SourceLocation loc) {
  return along(op::log_softmax, std::move(x), dim, dtype, loc);
}
Tensor softmin(Tensor x, int64_t dim, std::optional<DType> dtype, SourceLocation loc) {
  return detail::named("softmin", loc, [&] {
    return along(op::softmax, -Operand(std::move(x), loc), dim, dtype, loc);
  });
}
Tensor softmax_backward(Tensor gy, Tensor y, int64_t dim, SourceLocation loc) {
  SoftmaxAttrs a{dim};
  return call(op::softmax_backward, &a, loc, std::move(gy), std::move(y));
}
Tensor log_softmax_backward(Tensor gy, Tensor y, int64_t dim, SourceLocation loc) {
  SoftmaxAttrs a{dim};
  return call(op::log_softmax_backward, &a, loc, std::move(gy), std::move(y));
}

}  // namespace tandem
