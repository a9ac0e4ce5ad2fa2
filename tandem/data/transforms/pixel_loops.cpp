// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/transforms/pixel_loops_internal.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tandem/base/processor.h"
#include "tandem/base/unroll_internal.h"
#include "tandem/tensor/pixels_internal.h"

namespace tandem::data::detail {
namespace {

#if defined(__x86_64__)

/// Divides eight bytes, in the lower half of `v`, by 1 / `inverse`. A multiplication by the
/// reciprocal and one correction give the bits of a division (Markstein; verified for all bytes by
/// 255 and by 1) in a third of its time.
__attribute__((target("avx2,fma"), always_inline)) inline __m256 quotients(__m128i v, __m256 by,
                                                                           __m256 inverse) {
  const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
  const __m256 q = _mm256_mul_ps(x, inverse);
  return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, by, x), inverse, q);
}

__attribute__((target("avx2,fma"))) int64_t divide_bytes_fma(const uint8_t* from, float* to,
                                                             int64_t n, float by) {
  const __m256 d = _mm256_set1_ps(by), inverse = _mm256_set1_ps(1 / by);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, quotients(v, d, inverse));
    _mm256_storeu_ps(to + i + 8, quotients(_mm_srli_si128(v, 8), d, inverse));
  }
  _mm256_zeroupper();  // GCC 12 leaves it out of such functions
  return i;
}

__attribute__((target("avx2"))) int64_t normalize_avx2(const float* from, float* to, int64_t n,
                                                       float mean, float std) {
  const __m256 m = _mm256_set1_ps(mean), s = _mm256_set1_ps(std);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(from + i), m), s));
  _mm256_zeroupper();
  return i;
}

// 32 sums at once: enough to hide their latency.
__attribute__((target("avx2"))) int64_t sum_neighbours_avx2(const float* from, int64_t step,
                                                            const float* weights, int64_t taps,
                                                            float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256 sum[4] = {};
    for (int64_t k = 0; k < taps; ++k) {
      const __m256 w = _mm256_set1_ps(weights[k]);
      const float* x = from + i + k * step;
      TD_UNROLL(4)
      for (int j = 0; j < 4; ++j)
        sum[j] = _mm256_add_ps(sum[j], _mm256_mul_ps(_mm256_loadu_ps(x + 8 * j), w));
    }
    TD_UNROLL(4)
    for (int j = 0; j < 4; ++j) _mm256_storeu_ps(to + i + 8 * j, sum[j]);
  }
  _mm256_zeroupper();
  return i;
}

#endif

}  // namespace

void divide_bytes(const uint8_t* from, float* to, int64_t n, float by) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().avx2) i = divide_bytes_fma(from, to, n, by);
#endif
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]) / by;
}

void divide_pixels(const uint8_t* from, float* to, int64_t pixels, float by) {
  constexpr int64_t kStrip = 1024;  // fits the L1 cache
  uint8_t planes[3 * kStrip];
  for (int64_t i = 0; i < pixels; i += kStrip) {
    const int64_t n = std::min(kStrip, pixels - i);
    tandem::detail::to_planes(from + 3 * i, planes, n, 3, kStrip);
    for (int64_t c = 0; c < 3; ++c) divide_bytes(planes + c * kStrip, to + c * pixels + i, n, by);
  }
}

void normalize_numbers(const float* from, float* to, int64_t n, float mean, float std) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().avx2) i = normalize_avx2(from, to, n, mean, std);
#endif
  for (; i < n; ++i) to[i] = (from[i] - mean) / std;
}

void sum_neighbours(const float* from, int64_t step, const float* weights, int64_t taps, float* to,
                    int64_t n) {
  int64_t i = 0;
#if defined(__x86_64__)
  if (cpu_features().avx2) i = sum_neighbours_avx2(from, step, weights, taps, to, n);
#endif
  for (; i < n; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < taps; ++k) sum += from[i + k * step] * weights[k];
    to[i] = sum;
  }
}

}  // namespace tandem::data::detail
