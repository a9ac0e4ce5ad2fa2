// SPDX-License-Identifier: Apache-2.0
// The loops of resize_image over pictures of bytes: sums of pixels times weights of kBits bits,
// rounded and cut. Integers only, so the forms for AVX2 give the bits of the plain ones.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::data::detail {

inline constexpr int kResizeBits = 32 - 8 - 2;

/// Windows along one axis: place i of the result is the sum over count[i] pixels from first[i] on
/// with the weights [i * taps ...].
struct ResizeWindows {
  int64_t taps;
  const int64_t *first, *count;
  const int32_t* weights;
  const int16_t* halves;  ///< halves_of() those weights, for pixels of three channels
};
/// The weights of n places as the vector form for pixels reads them: four at a time, those of each
/// four cut into their upper bits and their lower ones.
std::vector<int16_t> halves_of(const int32_t* weights, int64_t taps, int64_t n);

/// Along rows: from [rows, in, channels] to [rows, out, channels].
void resize_rows(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                 int64_t channels, const ResizeWindows& w);
/// Across rows: from [in, width] to [out, width].
void resize_columns(const uint8_t* from, uint8_t* to, int64_t width, int64_t out,
                    const ResizeWindows& w);

}  // namespace tandem::data::detail
