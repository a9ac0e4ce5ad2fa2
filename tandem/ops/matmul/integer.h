// SPDX-License-Identifier: Apache-2.0
// Matmuls and convolutions of 8-bit integers with exact sums in i32. What stands for a number is
// (code - zero point) * scale; zero points are operands here, scales belong to what follows.
#pragma once

#include "tandem/ops/conv/conv.h"
#include "tandem/ops/matmul/packed.h"

namespace tandem {

namespace op {
/// matmul_integer: x u8 or i8 [..., k], w u8 or i8 [k, n], x_zero? (one number), w_zero? (one
/// number or [n]) -> i32 [..., n]. conv_integer: x [n, c, ...d], w [o, c/groups, ...k], w_zero? one
/// number or [o] -> i32 [n, o, ...]; padding counts as the zero point.
extern TD_API const OpDef matmul_integer, conv_integer;

/// Forms for weights that stay, as in packed.h: in no list, only compile() writes them.
/// pack_integer: w [k, n] or [o, c, kh, kw] -> i8 [panels, kh, pairs, 64]: w, or w - 128 of u8; of
/// the kw * c (or k) rows two lie side by side, an odd one beside zeros.
/// packed_integer_matmul: x [..., k], packed, x_zero?, b? i32 [..., n], w_zero? -> i32 [..., n].
/// packed_integer_conv: x [n, h, w, c], packed, x_zero?, b? i32 [..., o], w_zero? ->
/// i32 [n, h', w', o].
/// The bias b has one element for each column, and is added to the sums. The zero point w_zero is
/// given where it is neither the 0 of i8 nor the 128 of u8.
extern TD_API const OpDef pack_integer, packed_integer_matmul, packed_integer_conv;
}  // namespace op
TD_API std::span<const OpDef* const> integer_rows();

/// The matrix product of x [..., k] and w [k, n], both u8 or i8, less their zero points, summed
/// exactly in i32 (which wraps beyond its range). x_zero is one number of x's dtype, w_zero one
/// number of w's or [n]; undefined: 0. Throws Shape, DType.
TD_API Tensor matmul_integer(Tensor x, Tensor w, Tensor x_zero = {}, Tensor w_zero = {},
                             SourceLocation loc = SourceLocation::here());
/// The convolution of x [n, c, ...] with w [o, c/groups, ...] in the same way; w_zero is one number
/// or [o]. Throws Shape, DType, Value.
TD_API Tensor conv_integer(Tensor x, Tensor w, Tensor x_zero, Tensor w_zero, const ConvAttrs& attrs,
                           SourceLocation loc = SourceLocation::here());

namespace detail {

/// A weight of 8 bits with the strides of [o, c, kh, kw]; a matrix is [n, k, 1, 1].
struct IntegerWeight {
  explicit IntegerWeight(const Array& w);
  int64_t o, c, kernel_h, kernel_w, step_o, step_c, step_h, step_w;
  const void* data;
  bool is_signed;

  int64_t panels() const { return (o + kPackedPanel - 1) / kPackedPanel; }
  int64_t pairs() const { return (kernel_w * c + 1) / 2; }  ///< of one row of the kernel
  int64_t panel_size() const { return kernel_h * pairs() * 2 * kPackedPanel; }
  int64_t at(int64_t i) const {
    return is_signed ? static_cast<const int8_t*>(data)[i] : static_cast<const uint8_t*>(data)[i];
  }
};
/// Element i of an absent or present array of 8 bits; of one element it is always that one.
int32_t integer_zero(const Array* a, int64_t i);
/// Panels first..last-1 of pack_integer's result to `to`, which is where the first panel begins.
void pack_integer_panels(const IntegerWeight& w, int64_t first, int64_t last, int8_t* to);

}  // namespace detail
}  // namespace tandem
