// SPDX-License-Identifier: Apache-2.0
// One row of a depthwise convolution of codes: the taps of two rows are multiplied and added at
// once (VPMADDWD), so sums of 16 channels are two vectors of 32 bits.
#pragma once

#include <cstdint>

namespace tandem::detail {

struct IntegerDepthwiseRow {
  const uint8_t* const* rows = nullptr;  ///< 2 * pairs rows of x; an odd last one comes twice
  const uint8_t* outside = nullptr;      ///< a pixel of what stands for 0
  const int16_t* weight = nullptr;       ///< op::pack_integer_depthwise
  const int32_t* bias = nullptr;         ///< [c]
  int32_t* y = nullptr;                  ///< [w, c]
  int64_t c = 0, in_w = 0, w = 0, left = 0;
  int kernel_h = 0, kernel_w = 0, stride = 1;
};

struct IntegerDepthwiseLoops {
  void (*row_u8)(const IntegerDepthwiseRow& r);
  void (*row_i8)(const IntegerDepthwiseRow& r);
};
extern const IntegerDepthwiseLoops kIntegerDepthwiseAvx2;
/// nullptr: this processor has none.
const IntegerDepthwiseLoops* integer_depthwise_loops();

}  // namespace tandem::detail
