// SPDX-License-Identifier: Apache-2.0
// The loops of resize_image over byte images: sums of pixels times weights of kBits bits, rounded
// and clamped. Integers only, so the AVX2 versions give the same bits as the plain ones.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::data::detail {

inline constexpr int kResizeBits = 32 - 8 - 2;

/// Windows along one axis: element i of the result is the sum over count[i] pixels, starting at
/// first[i], with the weights [i * taps ...].
struct ResizeWindows {
  int64_t taps;
  const int64_t *first, *count;
  const int32_t* weights;
  const int16_t* halves;  ///< halves_of() these weights, for three-channel pixels
};
/// The weights of n positions in the layout of the vectorised pixel loop: in groups of four, each
/// group split into its upper and its lower bits.
std::vector<int16_t> halves_of(const int32_t* weights, int64_t taps, int64_t n);

/// Along rows: from [rows, in, channels] to [rows, out, channels].
void resize_rows(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
                 int64_t channels, const ResizeWindows& w);
/// Across rows: from [in, width] to [out, width].
void resize_columns(const uint8_t* from, uint8_t* to, int64_t width, int64_t out,
                    const ResizeWindows& w);

}  // namespace tandem::data::detail
