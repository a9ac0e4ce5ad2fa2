// SPDX-License-Identifier: Apache-2.0
// Ops that onnxruntime's quantisers write (domain com.microsoft): QLinear* on numbers of 8 bits,
// and products of such numbers. What QLinear* stands for is (x - zero) * scale; results are rounded
// to even and clamped. Products are exact.
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// What input i stands for; its scale and its zero point, which may be absent, follow it.
Tensor number_of(const OnnxCall& c, size_t i) {
  Tensor x = c.x(i).to(DType::f32);
  if (c.has(i + 2)) x = x - onnx_single(c, i + 2).to(DType::f32);
  return x * onnx_single(c, i + 1);
}

/// Sets output 0 to y in the scale of input i and the zero point after it; without one in the type
/// of input `like`.
void set_rounded(OnnxCall& c, const Tensor& y, size_t i, size_t like = 0) {
  const bool shifted = c.has(i + 1);
  c.set(0, onnx_quantised(y / onnx_single(c, i), shifted ? onnx_single(c, i + 1) : Tensor(),
                          c.type(shifted ? i + 1 : like)));
}

void qlinear_add(OnnxCall& c) { set_rounded(c, number_of(c, 0) + number_of(c, 3), 6); }
void qlinear_mul(OnnxCall& c) { set_rounded(c, number_of(c, 0) * number_of(c, 3), 6); }
void qlinear_sigmoid(OnnxCall& c) { set_rounded(c, sigmoid(number_of(c, 0)), 3); }
void qlinear_leaky_relu(OnnxCall& c) {
  set_rounded(c, leaky_relu(number_of(c, 0), c.attr_float("alpha", 0.01)), 3);
}

void qlinear_softmax(OnnxCall& c) {
  const Tensor x = number_of(c, 0);
  const int axis = c.axis("axis", -1, x.dim());
  if (c.attr("opset", 13) >= 13) return set_rounded(c, softmax(x, axis), 3);
  Dim rows = 1;
  for (int d = 0; d < axis; ++d) rows = rows * x.shape(d);
  set_rounded(c, softmax(x.reshape({rows, -1}), 1).reshape(x.shape()), 3);
}

void qlinear_concat(OnnxCall& c) {
  TD_CHECK(c.in.size() >= 5 && (c.in.size() - 2) % 3 == 0, Value,
           "expected a scale, a zero point and three inputs for each part, got {}", c.in.size());
  std::vector<Tensor> xs;
  for (size_t i = 2; i < c.in.size(); i += 3) xs.push_back(number_of(c, i));
  set_rounded(c, cat(xs, c.axis("axis", 0, xs[0].dim())), 0, 2);
}

void qlinear_where(OnnxCall& c) {
  set_rounded(c, where(c.x(0), number_of(c, 1), number_of(c, 4)), 7, 1);
}

void qlinear_reduce_mean(OnnxCall& c) {
  const Tensor x = number_of(c, 0);
  IntList dims;
  for (const int64_t a : c.attr_ints("axes")) dims.push_back(normalize_dim(a, x.dim()));
  if (dims.empty())
    for (int d = 0; d < x.dim(); ++d) dims.push_back(d);
  set_rounded(c, mean(x, dims, c.attr("keepdims", 1) != 0), 3);
}

void qlinear_average_pool(OnnxCall& c) {
  const Tensor x = number_of(c, 0);
  if (!c.attr("channels_last", 0)) return set_rounded(c, onnx_average_pool(c, x), 3);
  set_rounded(c, onnx_channels_last(onnx_average_pool(c, onnx_channels_first(x))), 3);
}

void qlinear_global_average_pool(OnnxCall& c) {
  const Tensor x = number_of(c, 0);
  TD_CHECK(x.dim() >= 3, Shape, "expected [n, c, ...], got {}", x.shape().to_string());
  const int first = c.attr("channels_last", 0) ? 1 : 2;
  IntList dims;
  for (int d = first; d < first + x.dim() - 2; ++d) dims.push_back(d);
  set_rounded(c, mean(x, dims, true), 3);
}

// ---- products

/// Adds input i as a bias.
Tensor with_bias(const OnnxCall& c, const Tensor& y, size_t i) { return c.has(i) ? y + c.x(i) : y; }

void matmul_to_float(OnnxCall& c) {
  const Tensor y = onnx_integer_matmul(c, 0, 4, 1, 5).to(DType::f32);
  const Tensor scale = onnx_single(c, 2) * onnx_beside(c.x(3), y, -1);
  c.set(0, with_bias(c, y * scale, 6));
}

void dynamic_matmul(OnnxCall& c) {
  const OnnxRounded a = onnx_rounded(c.x(0));
  const Tensor b = c.x(1), zero = c.x_or_none(3);
  const Tensor y = a.times(b, zero).to(DType::f32);
  c.set(0, with_bias(c, y * (a.scale * onnx_beside(c.x(2), y, -1)), 4));
}

void matmul_integer16(OnnxCall& c) {
  const OnnxType type =
      c.type(0) == OnnxType::u16 && c.type(1) == OnnxType::u16 ? OnnxType::u32 : OnnxType::i32;
  const Tensor y = matmul(c.x(0).to(DType::f64), c.x(1).to(DType::f64)).to(DType::i64);
  c.set(0, wrap_to(y, type).to(info_of(type).carrier), type);
}

void quantised_gemm(OnnxCall& c) {
  auto turned = [](const Tensor& x, bool turn) { return turn ? x.transpose(0, 1) : x; };
  TD_CHECK(c.x(0).dim() == 2 && c.x(3).dim() == 2, Shape, "expected two matrices, got {} and {}",
           c.value(0).describe(), c.value(3).describe());
  const Tensor a =
      turned(c.x(0).to(DType::f64) - onnx_single(c, 2).to(DType::f64), c.attr("transA", 0));
  Tensor b = turned(c.x(3).to(DType::f64), c.attr("transB", 0));
  if (c.has(5)) b = b - onnx_beside(c.x(5).to(DType::f64), b, -1);
  Tensor y = matmul(a, b);
  if (c.has(6)) y = y + c.x(6).to(DType::f64);
  const Tensor scale = onnx_single(c, 1) * onnx_beside(c.x(4), y, -1) * c.attr_float("alpha", 1);
  y = y * scale.to(DType::f64);
  if (!c.has(7)) return c.set(0, y.to(DType::f32));
  set_rounded(c, y, 7);
}

}  // namespace

std::span<const OnnxRow> onnx_quant_op_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxMicrosoft, "QLinearAdd", 1, 0, qlinear_add, {8, 1, ""}},
      {kOnnxMicrosoft, "QLinearMul", 1, 0, qlinear_mul, {8, 1, ""}},
      {kOnnxMicrosoft, "QLinearSigmoid", 1, 0, qlinear_sigmoid, {5, 1, ""}},
      {kOnnxMicrosoft, "QLinearLeakyRelu", 1, 0, qlinear_leaky_relu, {5, 1, "alpha"}},
      {kOnnxMicrosoft, "QLinearSoftmax", 1, 0, qlinear_softmax, {5, 1, "axis opset"}},
      {kOnnxMicrosoft, "QLinearConcat", 1, 0, qlinear_concat, {kOnnxAny, 1, "axis"}},
      {kOnnxMicrosoft, "QLinearWhere", 1, 0, qlinear_where, {9, 1, ""}},
      {kOnnxMicrosoft, "QLinearReduceMean", 1, 0, qlinear_reduce_mean, {5, 1, "axes keepdims"}},
      {kOnnxMicrosoft,
       "QLinearAveragePool",
       1,
       0,
       qlinear_average_pool,
       {5, 1, "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides"}},
      {kOnnxMicrosoft,
       "QLinearGlobalAveragePool",
       1,
       0,
       qlinear_global_average_pool,
       {5, 1, "channels_last"}},
      {kOnnxMicrosoft, "MatMulIntegerToFloat", 1, 0, matmul_to_float, {7, 1, ""}},
      {kOnnxMicrosoft, "DynamicQuantizeMatMul", 1, 0, dynamic_matmul, {5, 1, ""}},
      {kOnnxMicrosoft, "MatMulInteger16", 1, 0, matmul_integer16, {2, 1, ""}},
      {kOnnxMicrosoft, "QGemm", 1, 0, quantised_gemm, {9, 1, "alpha transA transB"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
