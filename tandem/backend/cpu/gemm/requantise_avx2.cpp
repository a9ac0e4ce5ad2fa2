// SPDX-License-Identifier: Apache-2.0
// Codes of tiles of sums, a row at a time. Called only where the processor has AVX2.
#include "tandem/backend/cpu/gemm/requantise_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include <cstring>

#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Requantise256 {
  using F = __m256;
  static constexpr int kWidth = 8;
  static F all(float x) { return _mm256_set1_ps(x); }
  static F load(const float* x) { return _mm256_loadu_ps(x); }
  static F from_sums(const int32_t* x) {
    return _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F unless_nan(F x, F other) {
    return _mm256_blendv_ps(other, x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
  }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F load_part(const float* x, int n) {
    return n >= kWidth ? load(x) : _mm256_maskload_ps(x, first(n));
  }
  static void store_part(float* to, int n, F v) {
    n >= kWidth ? _mm256_storeu_ps(to, v) : _mm256_maskstore_ps(to, first(n), v);
  }

  static void store_codes(const F (&v)[4], float zero, bool is_signed, uint8_t* to, int64_t, int,
                          int columns) {
    const __m256i z = _mm256_set1_epi16(static_cast<int16_t>(zero));
    const __m256i a = _mm256_adds_epi16(
        _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1])), z);
    const __m256i b = _mm256_adds_epi16(
        _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3])), z);
    const __m256i row = _mm256_permutevar8x32_epi32(
        is_signed ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b),
        _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (columns >= kRequantisedColumns)
      return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row);
    alignas(32) uint8_t codes[kRequantisedColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes), row);
    std::memcpy(to, codes, static_cast<size_t>(columns));
  }
};

#include "tandem/backend/cpu/gemm/requantise_loops.inc"

}  // namespace

constinit const RequantiseLoop kRequantiseAvx2 = requantise<Requantise256>;

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const RequantiseLoop kRequantiseAvx2 = nullptr;
}
#endif
