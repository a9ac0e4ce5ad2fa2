// SPDX-License-Identifier: Apache-2.0
// Random numbers: from the same distributions, drawn by whatever runs the model.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

// Uniform (or normal) numbers of a shape, which may be symbolic, in f32 (f64).
std::string draw(OnnxExportCall& c, const Shape& shape, bool normal, double a, double b, DType t) {
  c.b.random = true;
  OnnxAttributes all = {onnx_int("dtype", static_cast<int64_t>(onnx_type_of(t))),
                        onnx_float(normal ? "mean" : "low", a),
                        onnx_float(normal ? "scale" : "high", b)};
  if (!shape.is_symbolic() && shape.rank() > 0) {
    all.push_back(onnx_ints("shape", shape.to_vector()));
    return c.b.node(normal ? "RandomNormal" : "RandomUniform", {}, all);
  }
  const std::string like =
      c.b.node("ConstantOfShape", {c.b.dims(shape)}, {onnx_tensor("value", full({1}, 0, t))});
  return c.b.node(normal ? "RandomNormalLike" : "RandomUniformLike", {like}, all);
}

}  // namespace

bool export_rand(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RandAttrs>();
  const DType t = accumulation_dtype(a.dtype);
  c.set(0, c.b.cast(draw(c, c.out[0].shape, false, a.a, a.b, t), t, a.dtype));
  return true;
}
bool export_randn(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RandAttrs>();
  const DType t = accumulation_dtype(a.dtype);
  c.set(0, c.b.cast(draw(c, c.out[0].shape, true, a.a, a.b, t), t, a.dtype));
  return true;
}
bool export_randint(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RandintAttrs>();
  const std::string u = draw(c, c.out[0].shape, false, static_cast<double>(a.low),
                             static_cast<double>(a.high), DType::f64);
  const std::string whole =
      c.b.node("Clip", {c.b.node("Floor", {u}), c.b.number(static_cast<double>(a.low), DType::f64),
                        c.b.number(static_cast<double>(a.high - 1), DType::f64)});
  c.set(0, c.b.cast(whole, DType::f64, a.dtype));
  return true;
}
bool export_randperm(OnnxExportCall& c) {
  const int64_t n = c.get_attrs<RandpermAttrs>().n;
  if (n == 0) return false;
  const std::string u = draw(c, Shape{n}, false, 0, 1, DType::f32);
  c.set(0, c.b.add("TopK", {u, c.b.ints({n})}, 2, {})[1]);
  return true;
}
bool export_bernoulli(OnnxExportCall& c) {
  const DType t = accumulation_dtype(c.dtype(0));
  const std::string u = draw(c, c.out[0].shape, false, 0, 1, t);
  c.set(0, c.b.cast(c.b.node("Less", {u, c.x(0, t)}), DType::b8, c.out[0].dtype));
  return true;
}
bool export_dropout(OnnxExportCall& c) {
  c.b.random = true;
  const Names y = c.b.add(
      "Dropout",
      {c.x(0), c.b.number(c.get_attrs<DropoutAttrs>().p, DType::f32), c.b.number(true, DType::b8)},
      c.wanted(1) ? 2 : 1);
  c.set(0, y[0]);
  if (c.wanted(1)) c.set(1, y[1]);
  return true;
}
bool export_dropout_backward(OnnxExportCall& c) {
  const double keep = 1 - c.get_attrs<DropoutAttrs>().p;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    return {where(in[1], in[0] * (keep > 0 ? 1 / keep : 0.0), 0.0)};
  });
}
bool export_multinomial(OnnxExportCall& c) {
  const auto& a = c.get_attrs<MultinomialAttrs>();
  c.b.random = true;
  const int rank = c.rank(0);
  const std::string log = c.b.node("Log", {c.x(0, DType::f32)});
  if (a.replacement) {
    const std::string rows = rank == 1 ? c.b.node("Unsqueeze", {log, c.b.ints({0})}) : log;
    const std::string y = c.b.node("Multinomial", {rows},
                                   {onnx_int("sample_size", a.num_samples), onnx_int("dtype", 7)});
    c.set(0, rank == 1 ? c.b.node("Squeeze", {y, c.b.ints({0})}) : y);
    return true;
  }
  // The largest log weight - log(Exp(1)).
  const std::string u = draw(c, c.shape(0), false, 0, 1, DType::f32);
  const std::string exponential = c.b.node("Neg", {c.b.node("Log", {u})});
  const std::string keys = c.b.node("Sub", {log, c.b.node("Log", {exponential})});
  c.set(0, c.b.add("TopK", {keys, c.b.ints({a.num_samples})}, 2, {})[1]);
  return true;
}

}  // namespace tandem::onnx
