// SPDX-License-Identifier: Apache-2.0
// Transposing in registers, for files that are compiled for AVX2.
#pragma once

#include <immintrin.h>

namespace tandem::detail {
namespace {

/// 8 rows of 8 floats, or of any 32 bits, become 8 columns.
[[gnu::always_inline]] inline void transpose_block(__m256 (&r)[8]) {
  __m256 w[8];
  for (int i = 0; i < 4; ++i) {
    w[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    w[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(w[4 * i], w[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(w[4 * i], w[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(w[4 * i + 1], w[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(w[4 * i + 1], w[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    w[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    w[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  for (int i = 0; i < 8; ++i) r[i] = w[i];
}

}  // namespace
}  // namespace tandem::detail
