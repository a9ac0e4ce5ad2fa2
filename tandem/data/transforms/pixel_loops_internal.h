// SPDX-License-Identifier: Apache-2.0
// Loops over pixels: bytes to floats, normalising, sums of neighbours. The AVX2 versions give the
// same bits as the plain ones.
#pragma once

#include <cstdint>

namespace tandem::data::detail {

/// to[i] = from[i] / by, where `by` is 255 or 1.
void divide_bytes(const uint8_t* from, float* to, int64_t n, float by);
/// The same from bytes [pixels, 3] to three planes.
void divide_pixels(const uint8_t* from, float* to, int64_t pixels, float by);
/// to[i] = (from[i] - mean) / std; `to` may be `from`.
void normalize_numbers(const float* from, float* to, int64_t n, float mean, float std);
/// to[i] = weights[0] * from[i] + weights[1] * from[i + step] + ... over `taps`, added in this
/// order.
void sum_neighbours(const float* from, int64_t step, const float* weights, int64_t taps, float* to,
                    int64_t n);

}  // namespace tandem::data::detail
