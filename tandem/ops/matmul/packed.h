// SPDX-License-Identifier: Apache-2.0
// Rows that compile() substitutes for matmuls and convolutions whose weight does not change between
// calls: the weight is rearranged once into the order in which tiles read it, and activations are
// channels-last. They appear in no list of ops and have no derivative: only programs without
// gradients contain them, and only where a kernel claims them.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// Columns of a panel of a packed weight; the last panel is padded with zeros.
inline constexpr int64_t kPackedPanel = 32;
/// Outputs of one winograd_conv tile along each side, and the inputs read for them.
inline constexpr int64_t kWinogradOut = 4, kWinogradIn = 6;

/// Applied to a sum (and the residual) before it is stored.
enum class PackedEpilogue : int64_t { none, clamp, sigmoid, silu, gelu, hardswish };

/// Attributes of the rows that use a packed weight. The lists are (height, width); packed_matmul
/// only needs `columns`.
struct PackedAttrs {
  int64_t columns = 0;  ///< outputs: o, n
  IntList kernel, stride, padding, padding_end;
  int64_t epilogue = 0;                     ///< a PackedEpilogue
  double low = 0, high = 0;                 ///< for clamp
  double scale = 1, shift = 0;              ///< of the sum, before the residual; f32 only
  double scale_after = 1, shift_after = 0;  ///< of what the epilogue gives; f32 only
  template <class V>
  void fields(V& v) {
    v("columns", columns);
    v("kernel", kernel);
    v("stride", stride);
    v("padding", padding);
    v("padding_end", padding_end);
    v("epilogue", epilogue);
    v("low", low);
    v("high", high);
    v("scale", scale);
    v("shift", shift);
    v("scale_after", scale_after);
    v("shift_after", shift_after);
  }
};

/// Attributes of read_bytes.
struct ReadBytesAttrs {
  DType dtype = DType::f32;
  IntList shape;
  template <class V>
  void fields(V& v) {
    v("dtype", dtype);
    v("shape", shape);
  }
};

namespace op {
/// read_bytes: b u8 [n] -> the tensor with these bytes (a StoredBox).
extern TD_API const OpDef read_bytes;
/// pack_matrix: w [k, n] -> [panels, k, 32].
/// packed_matmul: x [..., k], packed, b? [n], r? -> y [..., n].
/// pack_matrix_bf16: w bf16 [k, n], k even -> [panels, k / 2, 64]: pairs along k lie side by side.
/// packed_matmul_bf16: the same in bf16, summed in f32 and rounded once, after the epilogue.
/// pack_conv: w [o, c, kh, kw] -> [panels, kh * kw * c, 32].
/// packed_conv: x [n, h, w, c], packed, b? [o], r? -> y [n, h', w', o].
/// pack_depthwise: w [c, 1, kh, kw] -> [kh * kw, c].
/// depthwise_conv: x [n, h, w, c], packed, b? [c], r? -> y [n, h', w', c].
/// pack_winograd: w [o, c, 3, 3] -> [36, panels, c, 32], transformed for F(4x4, 3x3).
/// winograd_conv: x [n, h, w, c], packed, b? [o], r? -> y [n, h', w', o]; stride 1. Lavin
/// and Gray, Fast Algorithms for Convolutional Neural Networks, https://arxiv.org/abs/1509.09308
/// The residual r is of y's shape: y = epilogue((sum + b) * scale + shift + r) * scale_after +
/// shift_after.
extern TD_API const OpDef pack_matrix, packed_matmul, pack_conv, packed_conv, pack_depthwise,
    depthwise_conv, pack_winograd, winograd_conv, pack_matrix_bf16, packed_matmul_bf16;
}  // namespace op

}  // namespace tandem
