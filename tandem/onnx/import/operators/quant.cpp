// SPDX-License-Identifier: Apache-2.0
// ONNX quantisation. Sums of products of quantised numbers are exact: those of bytes are computed
// in i32, others in f64, or in f32 where that is exact, too. Results are rounded as specified (half
// to even, then clamped to the type's range).
#include <algorithm>
#include <cmath>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::onnx {

Tensor onnx_single(const OnnxCall& c, size_t i) {
  const Tensor t = c.x(i);
  TD_CHECK(t.numel() == 1, Shape, "expected one number as input {}, got {}", i, c.in[i].describe());
  return t.reshape(Shape());
}

Tensor onnx_beside(Tensor s, const Tensor& x, int64_t axis, int64_t block) {
  if (s.numel() == 1 && block == 0) return s.reshape(Shape());
  const int d = normalize_dim(axis, x.dim());
  if (block > 0) {
    TD_CHECK(s.dim() == x.dim(), Shape, "blocks of {} do not fit {}", s.shape().to_string(),
             x.shape().to_string());
    s = repeat_interleave(s, block, d);
    return s.size(d) == x.size(d) ? s : s.narrow(d, 0, x.size(d));
  }
  TD_CHECK(s.dim() == 1 && s.size(0) == x.size(d), Shape, "{} scales for a dimension of {}",
           s.numel(), x.size(d));
  Shape shape;
  for (int i = 0; i < x.dim(); ++i) shape.push_back(i == d ? s.shape(0) : Dim(1));
  return s.reshape(shape);
}

namespace {
struct Range {
  double low, high;
};
Range range_of(OnnxType type) {
  const OnnxTypeInfo& t = info_of(type);
  const double span = std::ldexp(1.0, t.bits);
  return t.is_signed ? Range{-span / 2, span / 2 - 1} : Range{0, span - 1};
}
}  // namespace

OnnxValue onnx_quantised(const Tensor& x, const Tensor& zero, OnnxType type) {
  Tensor y = round(x).to(DType::f64);
  if (zero.defined()) y = y + zero.to(DType::f64);
  const Range r = range_of(type);
  return OnnxValue(clamp(y, r.low, r.high).to(info_of(type).carrier), type);
}

Tensor OnnxRounded::times(const Tensor& w, const Tensor& w_zero) const {
  return matmul_integer(codes, w, zero, w_zero);
}

OnnxRounded onnx_rounded(const Tensor& x) {
  const DynamicCodes y = dynamic_quantize_linear(x);
  return {y.codes, y.zero, y.scale};
}

namespace {
Tensor less_zero(const Tensor& x, const Tensor& zero, int64_t dim, DType dtype) {
  const Tensor v = x.to(dtype);
  if (!zero.defined()) return v;
  const Tensor z = zero.to(dtype);
  return v - (z.dim() > 1 ? z : onnx_beside(z, v, dim));
}
}  // namespace

Tensor onnx_centred(const OnnxCall& c, size_t x, size_t zero, int64_t dim, DType dtype) {
  return less_zero(c.x(x), c.x_or_none(zero), dim, dtype);
}

DType onnx_exact_sums(const OnnxCall& c, size_t x, size_t w, size_t zero, int64_t dim,
                      const IntList& summed) {
  constexpr double kMostX = 255, kExact = 1 << 24;  // of f32
  for (const size_t i : {x, w})
    if (info_of(c.type(i)).floating || info_of(c.type(i)).bits > 8) return DType::f64;
  const Tensor v = c.value(w).tensor(), z = c.has(zero) ? c.value(zero).tensor() : Tensor();
  if (v.is_symbolic() || (z.defined() && z.is_symbolic()) || v.numel() == 0) return DType::f64;
  const OutsideTrace outside;
  const NoGradGuard no_grad;
  const Tensor sums = sum(abs(less_zero(v, z, dim, DType::f64)), summed);
  return kMostX * amax(sums).item<double>() <= kExact ? DType::f32 : DType::f64;
}

bool onnx_bytes(const OnnxCall& c, size_t x, size_t w, size_t x_zero) {
  for (const size_t i : {x, w})
    if (const DType t = c.value(i).tensor().dtype(); t != DType::u8 && t != DType::i8) return false;
  return !c.has(x_zero) || c.value(x_zero).tensor().numel() == 1;
}

Tensor onnx_integer_matmul(const OnnxCall& c, size_t x, size_t x_zero, size_t w, size_t w_zero) {
  const Tensor b = c.value(w).tensor(), z = c.has(w_zero) ? c.value(w_zero).tensor() : Tensor();
  const bool by_column = z.defined() && z.dim() == 1 && b.dim() == 2 && z.size(0) == b.size(1);
  if (onnx_bytes(c, x, w, x_zero) && b.dim() == 2 && c.value(x).tensor().dim() > 0 &&
      (!z.defined() || z.numel() == 1 || by_column))
    return matmul_integer(c.x(x), c.x(w), c.x_or_none(x_zero), c.x_or_none(w_zero));
  const DType t = onnx_exact_sums(c, x, w, w_zero, -1, {b.dim() > 1 ? -2 : 0});
  const AutocastGuard exact(DType::bf16, false);
  return matmul(onnx_centred(c, x, x_zero, -2, t), onnx_centred(c, w, w_zero, -1, t));
}

Tensor onnx_integer_conv(const OnnxCall& c, size_t x, size_t x_zero, size_t w, size_t w_zero,
                         bool channels_last) {
  const auto image = [&](const Tensor& t) { return channels_last ? onnx_channels_first(t) : t; };
  const Tensor weight = c.value(w).tensor();
  const std::vector<int64_t> shape = weight.shape().to_vector();
  TD_CHECK(shape.size() >= 3, Shape, "expected a weight [o, c, ...], got {}",
           weight.shape().to_string());
  const auto window = [&](const Tensor& t) {
    return onnx_window(c, t, {shape.begin() + 2, shape.end()});
  };
  const int64_t groups = c.attr("group", 1);
  if (onnx_bytes(c, x, w, x_zero) && shape.size() == 4 && groups == 1) {
    const Tensor codes = image(c.x(x));
    return conv_integer(codes, c.x(w), c.x_or_none(x_zero), c.x_or_none(w_zero),
                        onnx_conv_attrs(window(codes), 1));
  }
  IntList summed;
  for (int d = 1; d < weight.dim(); ++d) summed.push_back(d);
  const DType t = onnx_exact_sums(c, x, w, w_zero, 0, summed);
  const AutocastGuard exact(DType::bf16, false);
  const Tensor codes = image(onnx_centred(c, x, x_zero, channels_last ? -1 : 1, t));
  return onnx_conv(codes, onnx_centred(c, w, w_zero, 0, t), {}, window(codes), groups);
}

namespace {

// Whether the codes are those of a row, with one scale for each entry of an axis.
bool onnx_codes(OnnxType type) {
  return type == OnnxType::u8 || type == OnnxType::i8 || type == OnnxType::i16;
}

void quantize_linear(OnnxCall& c) {
  Tensor x = c.x(0);
  const int64_t axis = c.attr("axis", 1), block = c.attr("block_size", 0);
  OnnxType type = OnnxType::u8;
  if (c.attr("output_dtype", 0)) type = static_cast<OnnxType>(c.attr("output_dtype", 0));
  if (c.has(2)) type = c.type(2);
  const int64_t precision = c.attr("precision", 0);
  if (!is_floating(x.dtype())) x = x.to(DType::f32);
  if (onnx_codes(type) && block == 0 && precision == 0)
    return c.set(0, tandem::quantize_linear(x, c.x(1), c.x_or_none(2), axis, info_of(type).carrier),
                 type);
  Tensor scale = onnx_beside(c.x(1), x, axis, block);
  const Tensor zero = c.has(2) ? onnx_beside(c.x(2), x, axis, block) : Tensor();
  if (precision) {
    const DType p = info_of(static_cast<OnnxType>(precision)).carrier;
    x = x.to(p);
    scale = scale.to(p);
  }
  x = x / scale.to(x.dtype());
  if (!info_of(type).floating) return c.set(0, onnx_quantised(x, zero, type));
  if (zero.defined() && type == OnnxType::f4e2m1) x = x + zero.to(x.dtype());
  c.set(0, cast_value(OnnxValue(x), type, c.attr("saturate", 1) != 0));
}

void dequantize_linear(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t axis = c.attr("axis", 1), block = c.attr("block_size", 0);
  const int64_t wanted = c.attr("output_dtype", 0);
  const DType scale_type = c.x(1).dtype();
  const DType result = wanted ? info_of(static_cast<OnnxType>(wanted)).carrier : scale_type;
  const bool held = c.type(0) == OnnxType::i4 || c.type(0) == OnnxType::u4;
  if ((onnx_codes(c.type(0)) || held || c.type(0) == OnnxType::i32) && block == 0 &&
      result == scale_type)
    return c.set(0, tandem::dequantize_linear(x, c.x(1), c.x_or_none(2), axis));
  Tensor y = x.to(x.dtype() == DType::i32 ? DType::f64 : DType::f32);
  if (c.has(2)) y = y - onnx_beside(c.x(2), x, axis, block).to(y.dtype());
  y = y * onnx_beside(c.x(1), x, axis, block).to(y.dtype());
  c.set(0, y.to(result));
}

void dynamic_quantize(OnnxCall& c) {
  const OnnxRounded y = onnx_rounded(c.x(0));
  c.set(0, y.codes);
  c.set(1, y.scale);
  c.set(2, y.zero);
}

void matmul_of_bytes(OnnxCall& c) { c.set(0, onnx_integer_matmul(c, 0, 2, 1, 3).to(DType::i32)); }

void qlinear_matmul(OnnxCall& c) {
  const Tensor y = onnx_integer_matmul(c, 0, 2, 3, 5).to(DType::f64);
  // Scales are multiplied in their own type, as in the reference implementation.
  Tensor sa = c.x(1), sb = c.x(4);
  if (sa.dim() == 1 && sa.size(0) > 1) sa = sa.unsqueeze(1);
  const Tensor scale = (sa * sb / c.x(6)).to(DType::f64);
  c.set(0, onnx_quantised(y * (scale.numel() == 1 ? scale.reshape(Shape()) : scale), c.x(7),
                          c.type(7)));
}

void qlinear_conv(OnnxCall& c) {
  const bool last = c.attr("channels_last", 0);
  Tensor y = onnx_integer_conv(c, 0, 2, 3, 5, last);
  if (c.has(8)) y = y + onnx_beside(c.x(8).to(y.dtype()), y, 1, 0);
  const Tensor scale = (c.x(1) * c.x(4) / c.x(6)).to(DType::f64);
  y = y.to(DType::f64) * onnx_beside(scale, y, 1, 0);
  c.set(0, onnx_quantised(last ? onnx_channels_last(y) : y, c.x(7), c.type(7)));
}

}  // namespace

std::span<const OnnxRow> onnx_quant_rows() {
  static constexpr OnnxRow kRows[] = {
      settings_from(1, {"",
                        "QuantizeLinear",
                        10,
                        0,
                        quantize_linear,
                        {3, 1, "axis block_size output_dtype precision saturate"},
                        &op::quantize_linear,
                        export_quantize}),
      staying(settings_from(1, {"",
                                "DequantizeLinear",
                                10,
                                0,
                                dequantize_linear,
                                {3, 1, "axis block_size output_dtype"},
                                &op::dequantize_linear,
                                export_dequantize})),
      exported(op::fake_quantize, export_fake_quantize),
      {"",
       "DynamicQuantizeLinear",
       11,
       0,
       dynamic_quantize,
       {1, 3, ""},
       &op::dynamic_quantize_linear,
       export_dynamic_quantize},
      {"",
       "MatMulInteger",
       10,
       0,
       matmul_of_bytes,
       {4, 1, ""},
       &op::matmul_integer,
       export_matmul_integer},
      {"", "QLinearMatMul", 10, 0, qlinear_matmul, {8, 1, ""}},
      {"",
       "QLinearConv",
       10,
       0,
       qlinear_conv,
       {9, 1, "auto_pad dilations group kernel_shape pads strides"}},
      settings_from(1, {kOnnxMicrosoft, "QuantizeLinear", 1, 0, quantize_linear, {3, 1, "axis"}}),
      staying(settings_from(
          1, {kOnnxMicrosoft, "DequantizeLinear", 1, 0, dequantize_linear, {3, 1, "axis"}})),
      {kOnnxMicrosoft,
       "QLinearConv",
       1,
       0,
       qlinear_conv,
       {9, 1, "auto_pad channels_last dilations group kernel_shape pads strides"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
