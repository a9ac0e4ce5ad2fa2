// SPDX-License-Identifier: Apache-2.0
// ONNX matmuls; integers are multiplied in f64, where their products are exact.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/activation_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void mat_mul(OnnxCall& c) {
  const Tensor a = c.x(0), b = c.x(1);
  if (is_floating(a.dtype()))
    c.set(0, matmul(a, b), c.type(0));
  else
    c.set_like(0, matmul(a.to(DType::f64), b.to(DType::f64)).to(DType::i64));
}

/// Gemm's result, of integers in f64.
Tensor gemm_result(const OnnxCall& c) {
  const bool exact = !is_floating(c.x(0).dtype());
  auto at = [&](size_t i) { return exact ? c.x(i).to(DType::f64) : c.x(i); };
  Tensor a = at(0), b = at(1);
  if (c.node().domain.empty() && c.version() < 7 && a.dim() > 2) a = a.reshape({a.shape(0), -1});
  const double alpha = c.attr_float("alpha", 1), beta = c.attr_float("beta", 1);
  MatmulAttrs attrs{c.attr("transA", 0) != 0, c.attr("transB", 0) != 0};
  Tensor y = matmul(a, b, attrs);
  if (alpha != 1) y = y * alpha;
  if (c.has(2) && beta != 0) y = y + (beta == 1 ? at(2) : at(2) * beta);
  return y;
}
void gemm(OnnxCall& c) { c.set_like(0, gemm_result(c)); }

void fused_gemm(OnnxCall& c) {
  const Tensor y = gemm_result(c);
  OnnxActivation a = onnx_activation(c.attr_text("activation"));
  a.alpha = c.attr_float("activation_alpha", a.alpha);
  a.beta = c.attr_float("activation_beta", a.beta);
  a.gamma = c.attr_float("activation_gamma", a.gamma);
  c.set_like(0, a.name.empty() ? y : onnx_activate(a, y));
}

/// [m, ..., k] as [..., m, k] where the first dimension stands before those of the batch.
Tensor batch_first(const Tensor& x, bool move) {
  return move && x.dim() > 2 ? movedim(x, {0}, {-2}) : x;
}

void fused_matmul(OnnxCall& c) {
  const Tensor a = batch_first(c.x(0), c.attr("transBatchA", 0)),
               b = batch_first(c.x(1), c.attr("transBatchB", 0));
  const MatmulAttrs attrs{c.attr("transA", 0) != 0 && a.dim() > 1,
                          c.attr("transB", 0) != 0 && b.dim() > 1};
  const Tensor y = matmul(a, b, attrs);
  const double alpha = c.attr_float("alpha", 1);
  c.set_like(0, alpha == 1 ? y : y * alpha);
}

void einsum_of(OnnxCall& c) {
  std::vector<Tensor> xs;
  for (size_t i = 0; i < c.in.size(); ++i) xs.push_back(c.x(i));
  std::string equation;
  for (const char ch : c.attr_text("equation"))
    if (ch != ' ') equation += ch;
  c.set(0, einsum(equation, xs), c.type(0));
}

}  // namespace

std::span<const OnnxRow> onnx_matmul_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "MatMul", 1, 0, mat_mul, {2, 1, ""}, &op::matmul, export_matmul},
      {"", "Gemm", 1, 6, gemm, {3, 1, "alpha beta transA transB ~broadcast"}},
      {"", "Gemm", 7, 0, gemm, {3, 1, "alpha beta transA transB"}, &op::linear, export_linear},
      {kOnnxMicrosoft,
       "FusedGemm",
       1,
       0,
       fused_gemm,
       {3, 1,
        "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"}},
      {kOnnxMicrosoft,
       "FusedMatMul",
       1,
       0,
       fused_matmul,
       {2, 1, "alpha transA transB transBatchA transBatchB"}},
      {kOnnxMicrosoft, "TransposeMatMul", 1, 0, fused_matmul, {2, 1, "alpha transA transB"}},
      {"", "Einsum", 12, 0, einsum_of, {kOnnxAny, 1, "equation"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
