// SPDX-License-Identifier: Apache-2.0
// GEMM tiles of 6 rows and two 256-bit vectors. Called only where the processor has AVX2 and
// FMA.
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/partial_store_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include "tandem/backend/cpu/gemm/transpose_avx2_internal.h"

namespace tandem::detail {
namespace {

const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
const int64_t kMasks64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

[[gnu::always_inline]] inline __m256i mask_of(int64_t n) {
  n = n > 8 ? 8 : n;
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n));
}
[[gnu::always_inline]] inline __m256i mask64_of(int64_t n) {
  n = n > 4 ? 4 : n;
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks64 + 4 - n));
}

constexpr int64_t kTurnAhead = 48;  ///< floats of a row fetched before they are turned

// Rows first..n - 1 of `from`, fewer than 8, exactly: what follows n belongs to others.
void transpose_rest(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t first,
                    int64_t n, int64_t depth) {
  const auto rows = static_cast<int>(n - first);
  for (int64_t k = 0; k < depth; k += 8) {
    const int64_t left = depth - k;
    const __m256i m = mask_of(left);
    __m256 r[8];
    for (int i = 0; i < 8; ++i)
      r[i] =
          i < rows ? _mm256_maskload_ps(from + (first + i) * from_row + k, m) : _mm256_setzero_ps();
    transpose_block(r);
    for (int i = 0; i < 8; ++i)
      if (i < left) store_first(to + (k + i) * to_row + first, rows, r[i]);
  }
}

void transpose_f32(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t n,
                   int64_t depth) {
  for (int64_t j = 0; j < n; j += 8) {
    if (j > 0 && n - j < 8) return transpose_rest(to, to_row, from, from_row, j, n, depth);
    for (int64_t k = 0; k < depth; k += 8) {
      const int64_t left = depth - k;
      __m256 r[8];
      if (n - j >= 8 && left >= 8) {
        for (int i = 0; i < 8; ++i) {
          const float* at = from + (j + i) * from_row + k;
          r[i] = _mm256_loadu_ps(at);
          __builtin_prefetch(at + kTurnAhead);
        }
      } else {
        const __m256i m = mask_of(left);
        for (int i = 0; i < 8; ++i)
          r[i] = j + i < n ? _mm256_maskload_ps(from + (j + i) * from_row + k, m)
                           : _mm256_setzero_ps();
      }
      transpose_block(r);
      for (int i = 0; i < 8; ++i)
        if (i < left) _mm256_storeu_ps(to + (k + i) * to_row + j, r[i]);
    }
  }
}

void transpose_f64(double* to, int64_t to_row, const double* from, int64_t from_row, int64_t n,
                   int64_t depth) {
  for (int64_t j = 0; j < n; j += 4) {
    const int64_t left = n - j;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < 4 && i < left; ++i)
        to[k * to_row + j + i] = from[(j + i) * from_row + k];
  }
}

struct F32 {
  using T = float;
  using V = __m256;
  struct Mask {
    __m256i bits;
    int n;
  };
  static constexpr int kWidth = 8, kRows = 6;
  static Mask mask(int n) { return {mask_of(n), n}; }
  static void prefetch(const T* p) {
    __builtin_prefetch(p);
    __builtin_prefetch(p + kWidth);
  }
  static V zero() { return _mm256_setzero_ps(); }
  static V set1(T x) { return _mm256_set1_ps(x); }
  static V load(const T* p) { return _mm256_loadu_ps(p); }
  static V load_part(const T* p, Mask m) { return _mm256_maskload_ps(p, m.bits); }
  static void store(T* p, V v) { _mm256_storeu_ps(p, v); }
  static void store_part(T* p, Mask m, V v) { store_first(p, m.n, v); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static constexpr auto transpose = transpose_f32;
  [[gnu::always_inline]] static void turn(__m256 (&r)[8]) { transpose_block(r); }
};

struct F64 {
  using T = double;
  using V = __m256d;
  struct Mask {
    __m256i bits;
    int n;
  };
  static constexpr int kWidth = 4, kRows = 6;
  static Mask mask(int n) { return {mask64_of(n), n}; }
  static void prefetch(const T* p) {
    __builtin_prefetch(p);
    __builtin_prefetch(p + kWidth);
  }
  static V zero() { return _mm256_setzero_pd(); }
  static V set1(T x) { return _mm256_set1_pd(x); }
  static V load(const T* p) { return _mm256_loadu_pd(p); }
  static V load_part(const T* p, Mask m) { return _mm256_maskload_pd(p, m.bits); }
  static void store(T* p, V v) { _mm256_storeu_pd(p, v); }
  static void store_part(T* p, Mask m, V v) { store_first(p, m.n, v); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static constexpr auto transpose = transpose_f64;
};

#include "tandem/backend/cpu/gemm/gemm_micro.inc"

}  // namespace

constinit const GemmTables kGemmAvx2 = {"avx2", make_table<F32>(Upto<6>()),
                                        make_table<F64>(Upto<6>())};

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const GemmTables kGemmAvx2 = {};
}
#endif
