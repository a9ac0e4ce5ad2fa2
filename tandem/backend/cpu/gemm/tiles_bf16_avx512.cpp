// SPDX-License-Identifier: Apache-2.0
// Tiles of 14 rows and two vectors of 16 sums. Called only where the processor has AVX-512 BF16.
#include "tandem/backend/cpu/gemm/tiles_bf16.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

#include <cstring>
#include <utility>

namespace tandem::detail {
namespace {

__mmask16 mask(int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1);
}

template <int R>
void tile(const Bf16Tile& t) {
  __m512 c[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) c[i][0] = c[i][1] = _mm512_setzero_ps();
  const uint16_t *a = t.a, *w = t.w;
  for (int64_t k = 0; k < t.k; k += 2, a += t.ak, w += 64) {
    const auto w0 = (__m512bh)_mm512_loadu_si512(w), w1 = (__m512bh)_mm512_loadu_si512(w + 32);
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      int pair;
      std::memcpy(&pair, a + i * t.am, sizeof pair);
      const auto x = (__m512bh)_mm512_set1_epi32(pair);
      c[i][0] = _mm512_dpbf16_ps(c[i][0], x, w0);
      c[i][1] = _mm512_dpbf16_ps(c[i][1], x, w1);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    _mm512_storeu_ps(t.c + i * 32, c[i][0]);
    _mm512_storeu_ps(t.c + i * 32 + 16, c[i][1]);
  }
}

void pair(uint16_t* to, int64_t width, const uint16_t* from, int64_t step, int64_t n, int64_t k) {
  for (int64_t q = 0; q < k; q += 2, from += 2 * step, to += 2 * width)
    for (int64_t i = 0; i < width; i += 16) {
      const __mmask16 m = mask(n - i);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, from + i));
      const __mmask16 both = q + 1 < k ? m : __mmask16(0);
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(both, from + step + i));
      _mm512_mask_storeu_epi32(to + 2 * i, mask(width - i),
                               _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

void add(float* c, const uint16_t* x, int64_t x_row, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += 16) {
      const __mmask16 m = mask(columns - j);
      const __m256i v = _mm256_maskz_loadu_epi16(m, x + i * x_row + j);
      const __m512 wide = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16);
      _mm512_storeu_ps(c + i * 32 + j, _mm512_add_ps(_mm512_loadu_ps(c + i * 32 + j), wide));
    }
}

void store(const float* c, uint16_t* y, int64_t y_row, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += 16) {
      const __m256bh v = _mm512_cvtneps_pbh(_mm512_loadu_ps(c + i * 32 + j));
      _mm256_mask_storeu_epi16(y + i * y_row + j, mask(columns - j), (__m256i)v);
    }
}

template <int... R>
constexpr Bf16Loops loops(std::integer_sequence<int, R...>) {
  return {{tile<R + 1>...}, pair, add, store};
}
constexpr Bf16Loops kLoops = loops(std::make_integer_sequence<int, kBf16Rows>());

}  // namespace

const Bf16Loops* bf16_loops() { return &kLoops; }

}  // namespace tandem::detail

#else
namespace tandem::detail {
const Bf16Loops* bf16_loops() { return nullptr; }
}  // namespace tandem::detail
#endif
