// SPDX-License-Identifier: Apache-2.0
// Real numbers and the codes of 8 or 16 bits that stand for them: x = (code - zero point) * scale,
// with one scale for the tensor or one for each entry of a dimension. ONNX's QuantizeLinear and
// DequantizeLinear, to the bit, and the function that training puts in their place.
#pragma once

#include <span>

#include "tandem/graph/op_def.h"

namespace tandem {

/// Attributes of quantize_linear and dequantize_linear.
struct QuantizeAttrs {
  int64_t axis = 1;         ///< the dimension that a vector of scales belongs to
  DType dtype = DType::u8;  ///< of the codes: u8, i8 or i16; dequantize_linear does not read it
  template <class V>
  void fields(V& v) {
    v("axis", axis);
    v("dtype", dtype);
  }
};

/// Attributes of fake_quantize.
struct FakeQuantizeAttrs {
  int64_t axis = 1;             ///< the dimension that a vector of scales belongs to
  int64_t low = 0, high = 255;  ///< smallest and largest code
  double gradient_factor = 1;   ///< of the gradients of scale and zero point
  template <class V>
  void fields(V& v) {
    v("axis", axis);
    v("low", low);
    v("high", high);
    v("gradient_factor", gradient_factor);
  }
};

namespace op {
/// quantize_linear: x floating, scale (one number or [x.shape[axis]]), zero? of the codes' dtype
/// and scale's shape -> codes of x's shape. dequantize_linear: codes, scale, zero? -> scale's
/// dtype. fake_quantize: x, scale, zero? (any numbers) -> x's shape and dtype.
/// dynamic_quantize_linear: x floating -> codes u8 of x's shape, scale f32 [], zero u8 [].
extern TD_API const OpDef quantize_linear, dequantize_linear, fake_quantize,
    dynamic_quantize_linear;
}  // namespace op
TD_API std::span<const OpDef* const> quantize_rows();

/// The codes clamp(round(x / scale) + zero, least, greatest code) of `dtype` (u8, i8 or i16),
/// rounded half to even. x is floating; scale is one number or has an entry for each index of x's
/// dimension `axis`, as has `zero`, which is of `dtype` (undefined: 0). Division and rounding are
/// in the precision of x. No gradient flows through codes. Throws DType, Shape, Index.
/// https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
TD_API Tensor quantize_linear(Tensor x, Tensor scale, Tensor zero = {}, int64_t axis = 1,
                              DType dtype = DType::u8, SourceLocation loc = SourceLocation::here());
/// (codes - zero) * scale in the dtype of scale, rounded once. The codes are u8, i8, i16 or i32,
/// the zero point is of their dtype (undefined: 0). The gradient reaches the scale alone. Throws
/// DType, Shape, Index. https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
TD_API Tensor dequantize_linear(Tensor codes, Tensor scale, Tensor zero = {}, int64_t axis = 1,
                                SourceLocation loc = SourceLocation::here());
struct DynamicCodes {
  Tensor codes, scale, zero;
};
/// x as codes of u8 over its own range, which is widened to have 0 in it: scale = (high - low) /
/// 255 (1 where all is 0), zero = clamp(round(-low / scale), 0, 255). Computed in f32 (f64 of f64).
/// No gradient flows. Throws DType, and Shape for a tensor of no elements.
/// https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
TD_API DynamicCodes dynamic_quantize_linear(Tensor x, SourceLocation loc = SourceLocation::here());
/// What quantize_linear and dequantize_linear with codes from `low` to `high` leave of x, with
/// straight-through gradients: that of x passes where the code was not clamped and is 0 elsewhere
/// (PyTorch's fake_quantize_per_tensor_affine and fake_quantize_per_channel_affine). The gradient
/// of the scale is round(x / scale) - x / scale where the code was not clamped, else the code less
/// the zero point; that of the zero point is -scale where the code was clamped, else 0; both are
/// multiplied by `gradient_factor`, which LSQ sets to 1 / sqrt(elements * high) (Esser et al.,
/// Learned Step Size Quantization, https://arxiv.org/abs/1902.08153). Throws DType, Shape, Value.
TD_API Tensor fake_quantize(Tensor x, Tensor scale, Tensor zero, const FakeQuantizeAttrs& attrs,
                            SourceLocation loc = SourceLocation::here());
/// PyTorch's names for it: one scale and zero point for the tensor, or [x.shape[axis]] of them. x
/// is divided by the scale where PyTorch multiplies by its rounded reciprocal: values half-way
/// between two codes may get the other one.
TD_API Tensor fake_quantize_per_tensor_affine(Tensor x, double scale, int64_t zero_point,
                                              int64_t quant_min, int64_t quant_max,
                                              SourceLocation loc = SourceLocation::here());
TD_API Tensor fake_quantize_per_tensor_affine(Tensor x, Tensor scale, Tensor zero_point,
                                              int64_t quant_min, int64_t quant_max,
                                              SourceLocation loc = SourceLocation::here());
TD_API Tensor fake_quantize_per_channel_affine(Tensor x, Tensor scale, Tensor zero_point,
                                               int64_t axis, int64_t quant_min, int64_t quant_max,
                                               SourceLocation loc = SourceLocation::here());

}  // namespace tandem
