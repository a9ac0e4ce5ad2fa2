// SPDX-License-Identifier: Apache-2.0
// bf16 weights with AVX2 and FMA: a bf16 is the upper half of an f32.
#include "tandem/backend/cpu/gemm/narrow_internal.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/gemm/prefetch_internal.h"
#include "tandem/backend/cpu/gemm/transpose_avx2_internal.h"
#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

using V = __m256;
constexpr int64_t kWidth = 8, kInputs = 16;  // elements of a vector, of f32 and of bf16
constexpr int64_t kLine = 32;                // bf16 of a cache line

// The first `n` inputs of 16 bf16 in each of 8 columns.
template <int R>
[[gnu::always_inline]] inline void add_inputs(V* sum, int64_t step, V (&pairs)[8], const float* x,
                                              int64_t x_row, int64_t n) {
  const V upper = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  transpose_block(pairs);
  TD_UNROLL(8)
  for (int p = 0; p < 8; ++p) {
    const V even = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs[p]), 16)),
            odd = _mm256_and_ps(pairs[p], upper);
    if (2 * p < n) {
      TD_UNROLL(4)
      for (int r = 0; r < R; ++r)
        sum[r * step] =
            _mm256_fmadd_ps(_mm256_broadcast_ss(x + r * x_row + 2 * p), even, sum[r * step]);
    }
    if (2 * p + 1 < n) {
      TD_UNROLL(4)
      for (int r = 0; r < R; ++r)
        sum[r * step] =
            _mm256_fmadd_ps(_mm256_broadcast_ss(x + r * x_row + 2 * p + 1), odd, sum[r * step]);
    }
  }
}

// G vectors of columns, of which `columns` exist.
template <int R, int G>
void columns_of(const NarrowCall& c, int64_t j, int64_t columns, float* y) {
  const int64_t ahead = 2 * G * kWidth * c.w_step;  // bytes: what comes after these columns
  const uint16_t* row[G][8];                        // those that do not exist are the last one
  for (int g = 0; g < G; ++g)
    for (int i = 0; i < 8; ++i)
      row[g][i] = c.w + (j + std::min<int64_t>(g * kWidth + i, columns - 1)) * c.w_step;
  alignas(32) float bias[G * kWidth] = {};
  if (c.bias) std::memcpy(bias, c.bias + j, static_cast<size_t>(columns) * sizeof(float));
  V total[R][G];
  for (int64_t k0 = 0; k0 < c.k; k0 += kGemmDepth) {
    const int64_t end = std::min(k0 + kGemmDepth, c.k);
    V sum[R][G];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g)
        sum[r][g] = k0 == 0 ? _mm256_load_ps(bias + g * kWidth) : _mm256_setzero_ps();
    int64_t k = k0;
    for (; k + kInputs <= end; k += kInputs) {
      TD_UNROLL(4)
      for (int g = 0; g < G; ++g) {
        V pairs[8];
        TD_UNROLL(8)
        for (int i = 0; i < 8; ++i) {
          pairs[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(row[g][i] + k));
          if (k % kLine == 0) prefetch_after<2>(row[g][i] + k, ahead);
        }
        add_inputs<R>(&sum[0][g], G, pairs, c.x + k, c.k, kInputs);
      }
    }
    if (k < end)
      for (int g = 0; g < G; ++g) {
        V pairs[8];
        for (int i = 0; i < 8; ++i) {
          pairs[i] = _mm256_setzero_ps();
          std::memcpy(&pairs[i], row[g][i] + k, static_cast<size_t>(end - k) * sizeof(uint16_t));
        }
        add_inputs<R>(&sum[0][g], G, pairs, c.x + k, c.k, end - k);
      }
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g)
        total[r][g] = k0 == 0 ? sum[r][g] : _mm256_add_ps(sum[r][g], total[r][g]);
  }
  for (int r = 0; r < R; ++r) {
    alignas(32) float out[G * kWidth];
    for (int g = 0; g < G; ++g) _mm256_store_ps(out + g * kWidth, total[r][g]);
    std::memcpy(y + r * c.y_row, out, static_cast<size_t>(columns) * sizeof(float));
  }
}

template <int R>
void by_column(const NarrowCall& c, int64_t j0, int64_t j1) {
  constexpr int kGroups = R == 1 ? 2 : 1;
  constexpr int64_t kColumns = kGroups * kWidth;
  for (int64_t j = j0; j < j1; j += kColumns)
    columns_of<R, kGroups>(c, j, std::min(kColumns, j1 - j), c.y + (j - j0));
}

inline V widened(const uint16_t* w) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))), 16));
}
inline float widened_one(uint16_t w) {
  const uint32_t bits = static_cast<uint32_t>(w) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// `inputs` (at most 4) rows of the weight into all sums.
template <int R, int inputs>
void add_rows(const NarrowCall& c, int64_t k, int64_t j0, int64_t n) {
  const uint16_t* w = c.w + k * c.w_step + j0;
  const float* x = c.x + k;
  V factor[R][inputs];
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < inputs; ++i) factor[r][i] = _mm256_broadcast_ss(x + r * c.k + i);
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) {
    V wide[inputs];
    TD_UNROLL(4)
    for (int i = 0; i < inputs; ++i) wide[i] = widened(w + i * c.w_step + j);
    TD_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      V sum = _mm256_loadu_ps(c.sums + r * n + j);
      TD_UNROLL(4)
      for (int i = 0; i < inputs; ++i) sum = _mm256_fmadd_ps(factor[r][i], wide[i], sum);
      _mm256_storeu_ps(c.sums + r * n + j, sum);
    }
  }
  for (; j < n; ++j)
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < inputs; ++i)
        c.sums[r * n + j] =
            __builtin_fmaf(x[r * c.k + i], widened_one(w[i * c.w_step + j]), c.sums[r * n + j]);
}

template <int R>
void by_input(const NarrowCall& c, int64_t j0, int64_t j1) {
  const int64_t n = j1 - j0;
  for (int64_t k0 = 0; k0 < c.k; k0 += kGemmDepth) {
    const int64_t end = std::min(k0 + kGemmDepth, c.k);
    for (int r = 0; r < R; ++r)
      if (k0 == 0 && c.bias)
        std::copy_n(c.bias + j0, n, c.sums + r * n);
      else
        std::fill_n(c.sums + r * n, n, 0.0f);
    int64_t k = k0;
    for (; k + 4 <= end; k += 4) add_rows<R, 4>(c, k, j0, n);
    for (; k < end; ++k) add_rows<R, 1>(c, k, j0, n);
    for (int r = 0; r < R; ++r)
      for (int64_t j = 0; j < n; ++j)
        c.y[r * c.y_row + j] =
            k0 == 0 ? c.sums[r * n + j] : c.sums[r * n + j] + c.y[r * c.y_row + j];
  }
}

}  // namespace

const NarrowLoops kNarrowAvx2{"AVX2",
                              {by_column<1>, by_column<2>, by_column<3>, by_column<4>},
                              {by_input<1>, by_input<2>, by_input<3>, by_input<4>}};

}  // namespace tandem::detail

#else

namespace tandem::detail {
const NarrowLoops kNarrowAvx2{};
}

#endif
