// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite": numbers to codes and back.
#include <cmath>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {
/// A number for each scale, to broadcast against x.
Tensor beside_axis(std::vector<double> v, const Tensor& x, int64_t axis, DType dtype) {
  const OutsideTrace outside;
  Shape s;
  if (v.size() > 1)
    for (int d = 0; d < x.dim(); ++d) s.push_back(d == axis ? Dim(x.size(d)) : Dim(1));
  TD_CHECK(v.size() == 1 || s.numel() == Dim(static_cast<int64_t>(v.size())), Shape,
           "{} scales for {}", v.size(), x.shape().to_string());
  return tensor(v, s).to(dtype);
}
Tensor numbers_of(const Tensor& codes, const std::vector<double>& scale,
                  const std::vector<double>& zero, int64_t axis) {
  const Tensor x = codes.to(DType::f32);
  return (x - beside_axis(zero, x, axis, DType::f32)) * beside_axis(scale, x, axis, DType::f32);
}
template <class T>
std::vector<double> wide_list(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}
}  // namespace

Tensor tflite_numbers(const Tensor& codes, const TfliteScales& s) {
  return numbers_of(codes, wide_list(s.scale), wide_list(s.zero), s.axis);
}

OnnxAttributes tflite_attributes(const TfliteScales& s, const std::string& prefix) {
  OnnxAttribute scale;
  scale.name = prefix + "scale";
  scale.kind = OnnxAttribute::floats;
  scale.float_list = s.scale;
  OnnxAttributes a{std::move(scale), onnx_ints((prefix + "zero").c_str(), s.zero)};
  if (s.scale.size() > 1) a.push_back(onnx_int((prefix + "axis").c_str(), s.axis));
  return a;
}

namespace {

void tflite_dequantize(OnnxCall& c) {
  c.set(0, numbers_of(c.x(0), wide_list(c.attr_floats("scale")), wide_list(c.attr_ints("zero")),
                      c.attr("axis", 0)));
}

// Halves are rounded away from zero. The quotient is one of f32.
void tflite_quantize(OnnxCall& c) {
  const Tensor x = c.x(0).to(DType::f32);
  const int64_t axis = c.attr("axis", 0);
  const auto type = static_cast<OnnxType>(c.attr("to", static_cast<int64_t>(OnnxType::i8)));
  const OnnxTypeInfo& info = info_of(type);
  const Tensor q =
      (x / beside_axis(wide_list(c.attr_floats("scale")), x, axis, DType::f32)).to(DType::f64);
  const Tensor rounded = sign(q) * floor(abs(q) + 0.5) +
                         beside_axis(wide_list(c.attr_ints("zero")), x, axis, DType::f64);
  const double span = std::ldexp(1.0, info.bits), low = info.is_signed ? -span / 2 : 0;
  c.set(0, clamp(rounded, low, low + span - 1).to(info.carrier), type);
}

}  // namespace

std::span<const OnnxRow> onnx_tflite_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTflite, "Dequantize", 1, 0, tflite_dequantize, {1, 1, "axis scale zero"}},
      {kOnnxTflite, "Quantize", 1, 0, tflite_quantize, {1, 1, "axis scale to zero"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
