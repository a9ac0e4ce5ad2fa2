// SPDX-License-Identifier: Apache-2.0
// Casts, matmuls, and activations with an ONNX name; all other pointwise rows use their expressions
// (expression.cpp).
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

bool export_cast(OnnxExportCall& c) {
  if (!c.has(0) || c.in[0].is_number) return false;
  // Floats to narrow integers saturate here; ONNX leaves the result undefined.
  const DType from = c.dtype(0), to = c.out[0].dtype;
  if (is_floating(from) && is_integral(to) && to != DType::i64) return false;
  c.set(0, c.b.cast(c.x(0), from, to));
  return true;
}

// ---- activations whose numbers are attributes

namespace {
bool floating_alone(const OnnxExportCall& c) {
  if (!is_floating(c.out[0].dtype) || c.dtype(0) != c.out[0].dtype || c.in[0].is_number)
    return false;
  for (size_t i = 1; i < c.in.size(); ++i)
    if (!c.in[i].is_number) return false;
  return true;
}
bool with_alpha(OnnxExportCall& c, const char* op) {
  if (!floating_alone(c)) return false;
  c.set(0, c.b.node(op, {c.x(0)}, {onnx_float("alpha", c.in[1].number.to_double())}));
  return true;
}
bool named(OnnxExportCall& c, const char* op, int since) {
  if (!floating_alone(c) || c.b.opset() < since) return false;
  c.set(0, c.b.node(op, {c.x(0)}));
  return true;
}
bool cut(OnnxExportCall& c, const std::string& low, const std::string& high) {
  c.set(0, c.b.node("Clip", {c.x(0), low, high}));
  return true;
}
}  // namespace

bool export_leaky_relu(OnnxExportCall& c) { return with_alpha(c, "LeakyRelu"); }
bool export_elu(OnnxExportCall& c) { return with_alpha(c, "Elu"); }
bool export_celu(OnnxExportCall& c) {
  return c.out[0].dtype == DType::f32 && with_alpha(c, "Celu");
}
bool export_selu(OnnxExportCall& c) {
  if (!floating_alone(c)) return false;
  c.set(0, c.b.node(
               "Selu", {c.x(0)},
               {onnx_float("alpha", 1.6732632423543772), onnx_float("gamma", 1.0507009873554805)}));
  return true;
}
bool export_hardsigmoid(OnnxExportCall& c) {
  if (!floating_alone(c)) return false;
  c.set(0,
        c.b.node("HardSigmoid", {c.x(0)}, {onnx_float("alpha", 1.0 / 6), onnx_float("beta", 0.5)}));
  return true;
}
bool export_hardswish(OnnxExportCall& c) { return named(c, "HardSwish", 14); }
bool export_mish(OnnxExportCall& c) { return named(c, "Mish", 18); }
bool export_gelu(OnnxExportCall& c) { return named(c, "Gelu", 20); }
bool export_gelu_tanh(OnnxExportCall& c) {
  if (!floating_alone(c) || c.b.opset() < 20) return false;
  c.set(0, c.b.node("Gelu", {c.x(0)}, {onnx_text("approximate", "tanh")}));
  return true;
}
// Our threshold makes no difference for floats from 20 on.
bool export_softplus(OnnxExportCall& c) {
  if (!floating_alone(c) || c.out[0].dtype == DType::f64 || c.in[1].number.to_double() != 1 ||
      c.in[2].number.to_double() < 20)
    return false;
  c.set(0, c.b.node("Softplus", {c.x(0)}));
  return true;
}
bool export_relu6(OnnxExportCall& c) {
  const DType t = c.out[0].dtype;
  return floating_alone(c) && cut(c, c.b.number(0, t), c.b.number(6, t));
}
// Clip's limits are inputs: 0-d, of the type of x.
bool export_clamp(OnnxExportCall& c) {
  const DType t = c.out[0].dtype;
  return floating_alone(c) && cut(c, c.x(1, t), c.x(2, t));
}
bool export_clamp_min(OnnxExportCall& c) {
  return floating_alone(c) && cut(c, c.x(1, c.out[0].dtype), "");
}
bool export_clamp_max(OnnxExportCall& c) {
  return floating_alone(c) && cut(c, "", c.x(1, c.out[0].dtype));
}

// ---- matmuls

namespace {
std::string transposed(OnnxExportCall& c, size_t i) {
  std::vector<int64_t> perm;
  for (int d = 0; d < c.rank(i); ++d) perm.push_back(d);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return c.b.permute(c.x(i), perm);
}
}  // namespace

bool export_matmul(OnnxExportCall& c) {
  const auto& a = c.get_attrs<MatmulAttrs>();
  if (c.dtype(0) != c.dtype(1)) return false;
  const DType t = c.dtype(0);
  if (c.rank(0) == 2 && c.rank(1) == 2 && (a.trans_a || a.trans_b) && is_floating(t)) {
    c.set(0, c.b.node("Gemm", {c.x(0), c.x(1)},
                      {onnx_int("transA", a.trans_a), onnx_int("transB", a.trans_b)}));
    return true;
  }
  const std::string x = a.trans_a ? transposed(c, 0) : c.x(0);
  const std::string y = a.trans_b ? transposed(c, 1) : c.x(1);
  c.set(0, c.b.node("MatMul", {x, y}));
  return true;
}
bool export_linear(OnnxExportCall& c) {
  if (c.rank(0) == 2) {
    c.set(0, c.b.node("Gemm", {c.x(0), c.x(1), c.maybe(2)}, {onnx_int("transB", 1)}));
    return true;
  }
  std::string y = c.b.node("MatMul", {c.x(0), transposed(c, 1)});
  if (c.has(2)) y = c.b.node("Add", {y, c.x(2)});
  c.set(0, y);
  return true;
}

}  // namespace tandem::onnx
