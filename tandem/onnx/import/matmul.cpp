// SPDX-License-Identifier: Apache-2.0
// ONNX matmuls; integers are multiplied in f64, where their products are exact.
#include "tandem/onnx/export/exporters_internal.h"
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

void gemm(OnnxCall& c) {
  const bool exact = !is_floating(c.x(0).dtype());
  auto at = [&](size_t i) { return exact ? c.x(i).to(DType::f64) : c.x(i); };
  Tensor a = at(0), b = at(1);
  if (c.version() < 7 && a.dim() > 2) a = a.reshape({a.shape(0), -1});
  const double alpha = c.attr_float("alpha", 1), beta = c.attr_float("beta", 1);
  MatmulAttrs attrs{c.attr("transA", 0) != 0, c.attr("transB", 0) != 0};
  Tensor y = matmul(a, b, attrs);
  if (alpha != 1) y = y * alpha;
  if (c.has(2) && beta != 0) y = y + (beta == 1 ? at(2) : at(2) * beta);
  c.set_like(0, y);
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
      {"",
       "Gemm",
       1,
       0,
       gemm,
       {3, 1, "alpha beta transA transB ~broadcast"},
       &op::linear,
       export_linear},
      {"", "Einsum", 12, 0, einsum_of, {kOnnxAny, 1, "equation"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
