// SPDX-License-Identifier: Apache-2.0
// Convolutions of 8-bit codes in which each channel has a kernel of its own, with exact sums in
// i32.
#pragma once

#include "tandem/ops/matmul/packed.h"

namespace tandem {

/// Channels of one block of the packed weight, and the elements of a pair of taps in it.
inline constexpr int64_t kIntegerDepthwiseBlock = 16;
/// Most rows of a kernel.
inline constexpr int64_t kIntegerDepthwiseRows = 15;
inline constexpr int64_t kIntegerDepthwiseLine = 2 * kIntegerDepthwiseBlock;

namespace op {
/// pack_integer_depthwise: w u8 or i8 [c, 1, kh, kw], w_zero? (one number or [c]), c >= 16 -> i16
/// [blocks, kw, pairs, 32]: w - w_zero. Two rows of the kernel are a pair, the last one of an odd
/// number stands beside zeros. A block is 16 channels, the last one the last 16; its channels lie
/// in the order 0-3, 8-11, 4-7, 12-15. integer_depthwise_conv: x [n, h, w, c], packed, x_zero?, b?
/// i32 [..., c] -> i32 [n, h', w', c]. As in integer.h: only compile() writes them, where a kernel
/// claims the second.
extern TD_API const OpDef pack_integer_depthwise, integer_depthwise_conv;
}  // namespace op

}  // namespace tandem
