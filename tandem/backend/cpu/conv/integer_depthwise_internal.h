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

/// The same of weights that fit 8 bits: four taps of a column are multiplied and added at once
/// (VPDPBUSD). Channels are taken 64, 32 or 16 at a time, the last ones like the last block of the
/// packed weight; numbers of channels are arranged in the order in which registers interleave them.
struct IntegerDepthwiseBytes {
  const uint8_t* const* rows = nullptr;  ///< of x, as many as the kernel has
  const uint8_t* outside = nullptr;
  const int8_t* weight = nullptr;  ///< arranged, as are bias, scale and add
  const int32_t* bias = nullptr;
  int32_t* y = nullptr;  ///< [w, c]; or else
  uint8_t* codes = nullptr;
  const float *scale = nullptr, *add = nullptr;  ///< add: nullptr for none
  float by = 1, low = 0, high = 0, zero = 0;     ///< RoundingNumbers
  bool hardswish = false;
  int64_t c = 0, in_w = 0, w = 0, left = 0;
};
struct IntegerDepthwiseByteLoops {
  /// False if a weight does not fit. `to` has 4 bytes for each channel of each block, column and
  /// four rows of the kernel; sums of the weights are arranged.
  bool (*arrange)(const int16_t* packed, int64_t c, int kernel_h, int kernel_w, int8_t* to,
                  int32_t* sums);
  /// One number for each channel; there are 16 for each block.
  void (*arrange_numbers)(const void* from, int64_t c, void* to);
  /// [size of the kernel is 5, not 3][stride - 1][x is signed]
  void (*row[2][2][2])(const IntegerDepthwiseBytes& r);
};
extern const IntegerDepthwiseByteLoops kIntegerDepthwiseVnni;
/// nullptr: this processor has none.
const IntegerDepthwiseByteLoops* integer_depthwise_byte_loops();

}  // namespace tandem::detail
