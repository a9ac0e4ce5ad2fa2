// SPDX-License-Identifier: Apache-2.0
// matmul_nbits with 8 lanes. Called only where the processor has AVX2 and FMA.
#include "tandem/backend/cpu/gemm/nbits_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct Lanes {
  using V = __m256;
  using I = __m256i;
  static constexpr int kWidth = 8, kRows = 1;
  static V zero() { return _mm256_setzero_ps(); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V spread(float f) { return _mm256_set1_ps(f); }
  static V spread(const float* f, int64_t n, int64_t each) {
    float lanes[kWidth] = {};
    for (int64_t i = 0; i < kWidth && i / each < n; ++i) lanes[i] = f[i / each];
    return load(lanes);
  }
  static float sum(V v) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
  }
  template <int bits>
  static I load_codes(const uint8_t* p) {
    constexpr int kMiddle = static_cast<int>(bits == 8   ? 0x80808080u
                                             : bits == 4 ? 0x88888888u
                                                         : 0xaaaaaaaau);
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                            _mm256_set1_epi32(kMiddle));
  }
  template <int bits>
  static V decode(I v, int s) {
    const int left = 32 - bits - bits * s;
    const I up = left == 0 ? v : _mm256_slli_epi32(v, left);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(up, 32 - bits));
  }
};

#include "tandem/backend/cpu/gemm/nbits_loops.inc"

}  // namespace

const NBitsLoops kNBitsAvx2 = kNBitsHere;

}  // namespace tandem::detail

#else

namespace tandem::detail {
const NBitsLoops kNBitsAvx2{0, {}};
}

#endif
