// SPDX-License-Identifier: Apache-2.0
// Codes as typed QuantizeLinear and DequantizeLinear nodes. The type of the codes is that
// of the zero point, so one is always written. What ONNX has no such node for takes the row's body.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/matmul/nbits.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/ops/view/create.h"

namespace tandem::onnx {
namespace {

constexpr int kHalfScales = 19;      ///< the first opset whose scales may have 16 bits
constexpr int64_t kLeastBlock = 16;  ///< inputs of a group of MatMulNBits
constexpr int kOtherCodes = 21;      ///< the first one whose codes may have 16, or 4

bool scale_fits(const OnnxExportCall& c, DType real) {
  const DType scale = c.dtype(1);
  if (real != scale || scale == DType::f64) return false;
  return scale == DType::f32 || c.b.opset() >= kHalfScales;
}
bool is_single(const Shape& s) { return !s.is_symbolic() && s.numel().value() == 1; }

// One number is a tensor without dimensions.
std::string step_of(OnnxExportCall& c, size_t i) {
  const Shape& s = c.shape(i);
  return is_single(s) && s.rank() > 0 ? c.b.reshape(c.x(i), Shape()) : c.x(i);
}
std::string zero_of(OnnxExportCall& c, DType dtype) {
  if (c.has(2)) return step_of(c, 2);
  const Shape& s = c.shape(1);
  return c.b.constant(zeros(is_single(s) ? Shape() : s, dtype));
}
OnnxAttributes axis_of(const OnnxExportCall& c, int64_t axis) {
  return is_single(c.shape(1)) ? OnnxAttributes() : OnnxAttributes{onnx_int("axis", c.axis(axis))};
}

}  // namespace

bool export_quantize(OnnxExportCall& c) {
  const auto& a = c.get_attrs<QuantizeAttrs>();
  if (!scale_fits(c, c.dtype(0)) || (a.dtype == DType::i16 && c.b.opset() < kOtherCodes))
    return false;
  c.set(0, c.b.node("QuantizeLinear", {c.x(0), step_of(c, 1), zero_of(c, a.dtype)},
                    axis_of(c, a.axis)));
  return true;
}

// Operand i, constant codes of i8 that 4 bits hold, as such; "": others.
std::string nibbles_of(OnnxExportCall& c, size_t i) {
  if (c.dtype(i) != DType::i8 || c.b.opset() < kOtherCodes) return "";
  const OnnxValue* v = c.b.constant_named(c.x(i));
  if (!v || v->tensor().numel() == 0) return "";
  for (const int64_t code : v->tensor().to_vector<int64_t>())
    if (code < -8 || code > 7) return "";
  const bool single = i > 0 && is_single(c.shape(i));
  return c.b.constant(OnnxValue(single ? v->tensor().reshape({}) : v->tensor(), OnnxType::i4));
}

bool export_dequantize(OnnxExportCall& c) {
  const DType codes = c.dtype(0);
  if (!scale_fits(c, c.out[0].dtype) || (codes == DType::i16 && c.b.opset() < kOtherCodes) ||
      (codes == DType::i32 && c.has(2)))
    return false;
  const OnnxAttributes axis = axis_of(c, c.get_attrs<QuantizeAttrs>().axis);
  const std::string nibbles = nibbles_of(c, 0);
  const Shape step = is_single(c.shape(1)) ? Shape() : c.shape(1);
  const std::string nibble_zero = nibbles.empty() ? ""
                                  : c.has(2)
                                      ? nibbles_of(c, 2)
                                      : c.b.constant(OnnxValue(zeros(step, codes), OnnxType::i4));
  if (!nibble_zero.empty()) {
    c.set(0, c.b.node("DequantizeLinear", {nibbles, step_of(c, 1), nibble_zero}, axis));
    return true;
  }
  c.set(0, c.b.node("DequantizeLinear",
                    {c.x(0), step_of(c, 1), codes == DType::i32 ? "" : zero_of(c, codes)}, axis));
  return true;
}

bool export_fake_quantize(OnnxExportCall& c) {
  const auto& a = c.get_attrs<FakeQuantizeAttrs>();
  const bool is_signed = a.low == -128 && a.high == 127;
  if (!is_signed && (a.low != 0 || a.high != 255)) return false;
  if (!scale_fits(c, c.dtype(0))) return false;
  const DType codes = is_signed ? DType::i8 : DType::u8;
  return c.by_ops([&](std::span<const Tensor> x) {
    const Tensor zero = x[2].defined() ? x[2].to(codes) : Tensor();
    return std::vector<Tensor>{
        dequantize_linear(quantize_linear(x[0], x[1], zero, a.axis, codes), x[1], zero, a.axis)};
  });
}

bool export_dynamic_quantize(OnnxExportCall& c) {
  if (c.dtype(0) != DType::f32) return false;
  const Names y = c.b.add("DynamicQuantizeLinear", {c.x(0)}, 3);
  for (size_t i = 0; i < y.size(); ++i) c.set(i, y[i]);
  return true;
}

bool export_matmul_integer(OnnxExportCall& c) {
  c.set(0, c.b.node("MatMulInteger", {c.x(0), c.x(1), c.maybe(2), c.maybe(3)}));
  return true;
}

// As a node of com.microsoft where x is rounded, which no node of ONNX says; else the body does.
// (Codes of 2 bits are newer than most readers of that node.)
bool export_matmul_nbits(OnnxExportCall& c) {
  const auto& a = c.get_attrs<NBitsAttrs>();
  const Shape &x = c.shape(0), &codes = c.shape(1);
  if (a.accuracy_level != kCodesOfInputs || a.bits == 2 || c.dtype(0) != DType::f32 ||
      c.dtype(2) != DType::f32 || codes.is_symbolic() || x[x.rank() - 1].is_symbolic())
    return false;
  const int64_t block = codes[2].value() * 8 / a.bits;
  if (block < kLeastBlock || (block & (block - 1)) != 0) return false;
  OnnxAttributes attributes{onnx_int("K", x[x.rank() - 1].value()), onnx_int("N", codes[0].value()),
                            onnx_int("bits", a.bits), onnx_int("block_size", block),
                            onnx_int("accuracy_level", a.accuracy_level)};
  c.b.model.opsets[kOnnxMicrosoft] = 1;
  c.set(0, c.b.add("MatMulNBits", {c.x(0), c.x(1), c.x(2), c.maybe(3)}, 1, std::move(attributes),
                   kOnnxMicrosoft)[0]);
  return true;
}

}  // namespace tandem::onnx
