// SPDX-License-Identifier: Apache-2.0
// matmul_nbits with 16 lanes. Codes of up to 4 bits are the index of a table of 16 numbers in a
// register. Called only where the processor has AVX-512.
#include "tandem/backend/cpu/gemm/nbits_internal.h"

#ifdef __AVX512F__
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Lanes {
  using V = __m512;
  using I = __m512i;
  static constexpr int kWidth = 16, kRows = 3;
  static V zero() { return _mm512_setzero_ps(); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V spread(float f) { return _mm512_set1_ps(f); }
  static V spread(const float* f, int64_t n, int64_t each) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at =
        _mm512_srl_epi32(lane, _mm_cvtsi32_si128(__builtin_ctz(static_cast<unsigned>(each))));
    const V all = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), f);
    return _mm512_permutexvar_ps(at, all);
  }
  static float sum(V v) {
    float lane[kWidth];
    store(lane, v);
    for (int half = kWidth / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  }
  template <int bits>
  static I load_codes(const uint8_t* p) {
    const I v = _mm512_loadu_si512(p);
    return bits == 8 ? _mm512_xor_si512(v, _mm512_set1_epi32(static_cast<int>(0x80808080u))) : v;
  }
  template <int bits>
  static V decode(I v, int s) {
    if constexpr (bits == 8) {
      const I up = s == 3 ? v : _mm512_slli_epi32(v, static_cast<unsigned>(24 - 8 * s));
      return _mm512_cvtepi32_ps(_mm512_srai_epi32(up, 24));
    } else {
      const V numbers =
          bits == 4 ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
                    : _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
      const I at = s == 0 ? v : _mm512_srli_epi32(v, static_cast<unsigned>(bits * s));
      return _mm512_permutexvar_ps(at, numbers);
    }
  }
};

#include "tandem/backend/cpu/gemm/nbits_loops.inc"

}  // namespace

const NBitsLoops kNBitsAvx512 = kNBitsHere;

}  // namespace tandem::detail

#else

namespace tandem::detail {
const NBitsLoops kNBitsAvx512{0, {}};
}

#endif
