// SPDX-License-Identifier: Apache-2.0
// Codes of tiles of sums, two rows at a time. Called only where the processor has AVX-512.
#include "tandem/backend/cpu/gemm/requantise_internal.h"

#ifdef __AVX512BW__
#include <immintrin.h>

#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Requantise512 {
  using F = __m512;
  static constexpr int kWidth = 16;
  static F all(float x) { return _mm512_set1_ps(x); }
  static F load(const float* x) { return _mm512_loadu_ps(x); }
  static F from_sums(const int32_t* x) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(x)); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
  static F unless_nan(F x, F other) {
    return _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
  }
  static __mmask16 first(int n) {
    return n >= kWidth ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1U << n) - 1);
  }
  static F load_part(const float* x, int n) { return _mm512_maskz_loadu_ps(first(n), x); }
  static void store_part(float* to, int n, F v) { _mm512_mask_storeu_ps(to, first(n), v); }

  // Packing takes four numbers of each vector at a time: permutations put rows in order.
  static void store_codes(const F (&v)[4], float zero, bool is_signed, uint8_t* to, int64_t step,
                          int rows, int columns) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i z = _mm512_set1_epi16(static_cast<int16_t>(zero));
    const __m512i a = _mm512_adds_epi16(
        _mm512_packs_epi32(_mm512_cvtps_epi32(v[0]), _mm512_cvtps_epi32(v[1])), z);
    const __m512i b = _mm512_adds_epi16(
        _mm512_packs_epi32(_mm512_cvtps_epi32(v[2]), _mm512_cvtps_epi32(v[3])), z);
    const __m512i both = _mm512_permutexvar_epi32(
        order, is_signed ? _mm512_packs_epi16(a, b) : _mm512_packus_epi16(a, b));
    const __mmask32 mask = columns >= 32 ? ~__mmask32(0) : (__mmask32(1) << columns) - 1;
    _mm256_mask_storeu_epi8(to, mask, _mm512_castsi512_si256(both));
    if (rows > 1) _mm256_mask_storeu_epi8(to + step, mask, _mm512_extracti64x4_epi64(both, 1));
  }
};

#include "tandem/backend/cpu/gemm/requantise_loops.inc"

}  // namespace

constinit const RequantiseLoop kRequantiseAvx512 = requantise<Requantise512>;

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const RequantiseLoop kRequantiseAvx512 = nullptr;
}
#endif
