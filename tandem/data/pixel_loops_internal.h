// SPDX-License-Identifier: Apache-2.0
// Loops over pixels one by one: bytes to numbers, normalising. The forms for AVX2 give the bits of
// the plain ones.
#pragma once

#include <cstdint>

namespace tandem::data::detail {

/// to[i] = from[i] / by.
void divide_bytes(const uint8_t* from, float* to, int64_t n, float by);
/// to[i] = (from[i] - mean) / std; `to` may be `from`.
void normalize_numbers(const float* from, float* to, int64_t n, float mean, float std);

}  // namespace tandem::data::detail
