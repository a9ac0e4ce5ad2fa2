// SPDX-License-Identifier: Apache-2.0
// Philox in AVX2: eight elements at once. Entered only after a check of the processor.
#include "tandem/cpu/random_kernels_internal.h"

#if defined(__AVX2__)
#include <immintrin.h>

namespace tandem::detail {
namespace {

// Low and high halves of a[i] * m for eight lanes: the even and the odd ones apart.
inline void multiply(__m256i a, __m256i m, __m256i& low, __m256i& high) {
  const __m256i even = _mm256_mul_epu32(a, m);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

}  // namespace

void philox_words_avx2(uint64_t seed, uint32_t offset, uint64_t first, int64_t n, uint32_t* w0,
                       uint32_t* w1) {
  const __m256i m0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53u));
  const __m256i m1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57u));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    alignas(32) uint32_t element[2][8];
    for (int l = 0; l < 8; ++l) {
      const uint64_t e = first + static_cast<uint64_t>(i + l);
      element[0][l] = static_cast<uint32_t>(e);
      element[1][l] = static_cast<uint32_t>(e >> 32);
    }
    __m256i c0 = _mm256_set1_epi32(static_cast<int>(offset)), c1 = _mm256_setzero_si256();
    __m256i c2 = _mm256_load_si256(reinterpret_cast<const __m256i*>(element[0]));
    __m256i c3 = _mm256_load_si256(reinterpret_cast<const __m256i*>(element[1]));
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      __m256i al, ah, bl, bh;
      multiply(c0, m0, al, ah);
      multiply(c2, m1, bl, bh);
      c0 = _mm256_xor_si256(_mm256_xor_si256(bh, c1), _mm256_set1_epi32(static_cast<int>(k0)));
      c1 = bl;
      c2 = _mm256_xor_si256(_mm256_xor_si256(ah, c3), _mm256_set1_epi32(static_cast<int>(k1)));
      c3 = al;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(w0 + i), c0);
    if (w1) _mm256_storeu_si256(reinterpret_cast<__m256i*>(w1 + i), c1);
  }
  if (i < n)
    philox_words_base(seed, offset, first + static_cast<uint64_t>(i), n - i, w0 + i,
                      w1 ? w1 + i : nullptr);
}

}  // namespace tandem::detail

#else

namespace tandem::detail {
void philox_words_avx2(uint64_t seed, uint32_t offset, uint64_t first, int64_t n, uint32_t* w0,
                       uint32_t* w1) {
  philox_words_base(seed, offset, first, n, w0, w1);
}
}  // namespace tandem::detail

#endif
