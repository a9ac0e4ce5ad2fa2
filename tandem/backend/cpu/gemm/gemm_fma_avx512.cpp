// SPDX-License-Identifier: Apache-2.0
// GEMM tiles of 14 rows and two 512-bit vectors. Called only where the processor has AVX-512.
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX512F__
#include <immintrin.h>

namespace tandem::detail {
namespace {

// 16 x 16 transpose in registers: r[i] lane j becomes r[j] lane i.
[[gnu::always_inline]] inline void transpose_block(__m512 (&r)[16]) {
  __m512 w[16];
  for (int i = 0; i < 8; ++i) {
    w[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    w[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  auto lo = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  auto hi = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = lo(w[4 * i], w[4 * i + 2]);
    r[4 * i + 1] = hi(w[4 * i], w[4 * i + 2]);
    r[4 * i + 2] = lo(w[4 * i + 1], w[4 * i + 3]);
    r[4 * i + 3] = hi(w[4 * i + 1], w[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    w[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    w[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    w[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    w[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(w[i], w[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(w[i], w[i + 8], 0xdd);
  }
}

void transpose_f32(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t n,
                   int64_t depth) {
  for (int64_t j = 0; j < n; j += 16) {
    for (int64_t k = 0; k < depth; k += 16) {
      const int64_t left = depth - k;
      const __mmask16 m = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
      __m512 r[16];
      for (int i = 0; i < 16; ++i)
        r[i] = j + i < n ? _mm512_maskz_loadu_ps(m, from + (j + i) * from_row + k)
                         : _mm512_setzero_ps();
      transpose_block(r);
      // Only a lone block may write past n: later ones would overwrite finished rows.
      const __mmask16 keep = j > 0 && n - j < 16 ? __mmask16((1u << (n - j)) - 1) : 0xffff;
      for (int i = 0; i < 16; ++i)
        if (i < left) _mm512_mask_storeu_ps(to + (k + i) * to_row + j, keep, r[i]);
    }
  }
}

// 8 x 8 by gathers: rarely on the critical path.
void transpose_f64(double* to, int64_t to_row, const double* from, int64_t from_row, int64_t n,
                   int64_t depth) {
  const __m512i step =
      _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi64(from_row));
  for (int64_t j = 0; j < n; j += 8) {
    const int64_t left = n - j;
    const __mmask8 m = left >= 8 ? __mmask8(0xff) : __mmask8((1u << left) - 1);
    for (int64_t k = 0; k < depth; ++k)
      _mm512_mask_storeu_pd(
          to + k * to_row + j, m,
          _mm512_mask_i64gather_pd(_mm512_setzero_pd(), m, step, from + j * from_row + k, 8));
  }
}

struct F32 {
  using T = float;
  using V = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16, kRows = 14;
  static Mask mask(int n) { return n >= 16 ? Mask(0xffff) : Mask((1u << n) - 1); }
  static void prefetch(const T* p) {
    __builtin_prefetch(p);
    __builtin_prefetch(p + kWidth);
  }
  static V zero() { return _mm512_setzero_ps(); }
  static V set1(T x) { return _mm512_set1_ps(x); }
  static V load(const T* p) { return _mm512_loadu_ps(p); }
  static V load_part(const T* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static void store(T* p, V v) { _mm512_storeu_ps(p, v); }
  static void store_part(T* p, Mask m, V v) { _mm512_mask_storeu_ps(p, m, v); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static constexpr auto transpose = transpose_f32;
  [[gnu::always_inline]] static void turn(__m512 (&r)[16]) { transpose_block(r); }
};

struct F64 {
  using T = double;
  using V = __m512d;
  using Mask = __mmask8;
  static constexpr int kWidth = 8, kRows = 14;
  static Mask mask(int n) { return n >= 8 ? Mask(0xff) : Mask((1u << n) - 1); }
  static void prefetch(const T* p) {
    __builtin_prefetch(p);
    __builtin_prefetch(p + kWidth);
  }
  static V zero() { return _mm512_setzero_pd(); }
  static V set1(T x) { return _mm512_set1_pd(x); }
  static V load(const T* p) { return _mm512_loadu_pd(p); }
  static V load_part(const T* p, Mask m) { return _mm512_maskz_loadu_pd(m, p); }
  static void store(T* p, V v) { _mm512_storeu_pd(p, v); }
  static void store_part(T* p, Mask m, V v) { _mm512_mask_storeu_pd(p, m, v); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static constexpr auto transpose = transpose_f64;
};

#include "tandem/backend/cpu/gemm/gemm_micro.inc"

}  // namespace

constinit const GemmTables kGemmAvx512 = {"avx512", make_table<F32>(Upto<14>()),
                                          make_table<F64>(Upto<14>())};

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const GemmTables kGemmAvx512 = {};
}
#endif
