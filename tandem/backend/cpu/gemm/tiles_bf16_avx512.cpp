// SPDX-License-Identifier: Apache-2.0
// Tiles of 14 rows and two vectors of 16 sums. Called only where the processor has AVX-512 BF16.
#include "tandem/backend/cpu/gemm/tiles_bf16.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tandem/backend/cpu/gemm/prefetch_internal.h"
#include "tandem/backend/cpu/gemm/turn_internal.h"
#include "tandem/base/processor.h"

namespace tandem::detail {
namespace {

constexpr int kRows = 14;
constexpr int64_t kFarBytes = 16384;  ///< fetched so long before they are needed

__mmask16 mask(int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1);
}

template <int R>
void tile_of(const Bf16Tile& t) {
  __m512 c[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    c[i][0] = t.accumulate ? _mm512_loadu_ps(t.c + i * 32) : _mm512_setzero_ps();
    c[i][1] = t.accumulate ? _mm512_loadu_ps(t.c + i * 32 + 16) : _mm512_setzero_ps();
  }
  const uint16_t *a = t.a, *w = t.w;
  for (int64_t k = 0; k < t.k; k += 2, a += t.ak, w += 64) {
    if (t.far) {
      prefetch_after<2>(w, kFarBytes);
      prefetch_after<2>(w + 32, kFarBytes);
    }
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

template <int... R>
void tile(const Bf16Tile& t, int rows, std::integer_sequence<int, R...>) {
  static constexpr void (*all[])(const Bf16Tile&) = {tile_of<R + 1>...};
  all[rows - 1](t);
}
void tile_of_rows(const Bf16Tile& t, int rows) {
  tile(t, rows, std::make_integer_sequence<int, kRows>());
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

void turn(uint16_t* to, const uint16_t* from, int64_t step, int64_t rows, int64_t k) {
  pair(to, rows, from, step, rows, k);
}

// 16 columns of 16 pairs at a time.
void pair_rows(uint16_t* to, const uint16_t* from, int64_t step, int64_t n, int64_t k,
               int64_t pairs) {
  for (int64_t half = 0; half < 2; ++half, from += 16 * step, n -= 16)
    for (int64_t q = 0; q < pairs; q += 16) {
      const int64_t left = k - 2 * q;
      const auto m = left >= 32 ? __mmask32(~0u) : left <= 0 ? __mmask32(0) : (1u << left) - 1;
      __m512i v[16];
      for (int64_t j = 0; j < 16; ++j)
        v[j] =
            j < n ? _mm512_maskz_loadu_epi16(m, from + j * step + 2 * q) : _mm512_setzero_si512();
      turn_dwords(v);
      const int64_t count = std::min<int64_t>(16, pairs - q);
      for (int64_t p = 0; p < count; ++p)
        _mm512_storeu_si512(to + ((q + p) * kBf16Panel + 16 * half) * 2, v[p]);
    }
}

void pair_lines(uint16_t* to, const uint16_t* const* lines, int64_t n, int64_t pairs) {
  alignas(64) uint16_t order[2 * kBf16Panel];
  for (uint16_t j = 0; j < kBf16Panel; ++j) order[2 * j] = j, order[2 * j + 1] = 32 + j;
  const __m512i first = _mm512_load_si512(order), second = _mm512_load_si512(order + 32);
  const auto m = n >= 32 ? __mmask32(~0u) : (__mmask32(1) << n) - 1;
  for (int64_t q = 0; q < pairs; ++q, to += 2 * kBf16Panel) {
    const __m512i even = _mm512_maskz_loadu_epi16(m, lines[2 * q]),
                  odd = _mm512_maskz_loadu_epi16(m, lines[2 * q + 1]);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, first, odd));
    _mm512_storeu_si512(to + kBf16Panel, _mm512_permutex2var_epi16(even, second, odd));
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

void release() {}

constexpr Bf16Loops kLoops = {kRows, false,     tile_of_rows, turn, release,
                              pair,  pair_rows, pair_lines,   add,  store};

}  // namespace

const Bf16Loops* bf16_vector_loops() { return cpu_features().bf16 ? &kLoops : nullptr; }

}  // namespace tandem::detail

#else
namespace tandem::detail {
const Bf16Loops* bf16_vector_loops() { return nullptr; }
}  // namespace tandem::detail
#endif
