// SPDX-License-Identifier: Apache-2.0
// Winograd's F(2x2, 3x3) over 8-bit codes: 16 products of transformed tiles in place of the 36 of a
// 3x3 convolution. With G doubled all transforms are integers, products fit 16 bits times 16, and
// four times the sum is exact in i32, so results are those of packed_integer_conv to the bit.
#pragma once

#include "tandem/ops/matmul/packed.h"

namespace tandem {

/// Outputs of a tile along each side, and the inputs read for them.
inline constexpr int64_t kIntegerWinogradOut = 2, kIntegerWinogradIn = 4;
inline constexpr int64_t kIntegerWinogradMatmuls = kIntegerWinogradIn * kIntegerWinogradIn;
/// With more channels, four times a sum of 9 products of 255 and -128 each may leave i32.
inline constexpr int64_t kMostIntegerWinogradChannels = (int64_t{1} << 29) / (9 * 255 * 128);

namespace op {
/// pack_integer_winograd: w u8 or i8 [o, c, 3, 3] -> i16 [panels, 16, pairs, 64]: 4 G w G^T, of
/// w - 128 where w is u8; of the c rows two lie side by side, an odd one beside zeros.
/// integer_winograd_conv: x [n, h, w, c], packed, x_zero?, b? i32 [..., o] -> i32 [n, h', w', o];
/// stride 1. As in integer.h: only compile() writes them, where a kernel claims the second.
extern TD_API const OpDef pack_integer_winograd, integer_winograd_conv;
}  // namespace op

}  // namespace tandem
