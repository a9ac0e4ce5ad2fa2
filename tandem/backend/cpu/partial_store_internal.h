// SPDX-License-Identifier: Apache-2.0
// The first lanes of an AVX2 vector into memory. Not by a masked store (VMASKMOVPS), which AMD's
// processors make of many micro-operations: with one for each step of k, packing a transposed
// matrix cost small GEMMs a tenth of their speed and more on Zen 3.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>

namespace tandem::detail {

/// p[0..n) = the first n lanes of v, 0 <= n <= 8.
[[gnu::always_inline]] inline void store_first(float* p, int n, __m256 v) {
  if (n >= 8) return _mm256_storeu_ps(p, v);
  __m128 part = _mm256_castps256_ps128(v);
  if (n & 4) {
    _mm_storeu_ps(p, part);
    part = _mm256_extractf128_ps(v, 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), part);
    part = _mm_movehl_ps(part, part);
    p += 2;
  }
  if (n & 1) _mm_store_ss(p, part);
}
/// The same for 0 <= n <= 4.
[[gnu::always_inline]] inline void store_first(double* p, int n, __m256d v) {
  if (n >= 4) return _mm256_storeu_pd(p, v);
  __m128d part = _mm256_castpd256_pd128(v);
  if (n & 2) {
    _mm_storeu_pd(p, part);
    part = _mm256_extractf128_pd(v, 1);
    p += 2;
  }
  if (n & 1) _mm_store_sd(p, part);
}

}  // namespace tandem::detail
#endif
