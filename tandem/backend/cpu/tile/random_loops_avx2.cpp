// SPDX-License-Identifier: Apache-2.0
// The random loops in AVX2: Philox for eight elements at once. Called only after checking the
// processor; empty on other architectures.
#include <bit>

#include "tandem/backend/cpu/tile/random_kernels_internal.h"
#include "tandem/base/philox.h"

#if defined(__AVX2__)
#include <immintrin.h>

namespace tandem::detail {
namespace {

// Low and high halves of a[i] * m for eight lanes: even and odd ones separately.
inline void multiply(__m256i a, __m256i m, __m256i& low, __m256i& high) {
  const __m256i even = _mm256_mul_epu32(a, m);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

struct Words {
  __m256i c0, c1;
};
inline Words eight_blocks(RngKey key, uint64_t first) {
  const __m256i m0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53u));
  const __m256i m1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57u));
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);
  __m256i c0 = _mm256_set1_epi32(static_cast<int>(key.offset)), c1 = _mm256_setzero_si256();
  __m256i c2 = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(low)), lane);
  // Lanes with a carry out of the low half: as unsigned, their sum is below the start.
  const __m256i flip = _mm256_set1_epi32(INT32_MIN);
  const __m256i carry = _mm256_cmpgt_epi32(
      _mm256_xor_si256(_mm256_set1_epi32(static_cast<int>(low)), flip), _mm256_xor_si256(c2, flip));
  __m256i c3 = _mm256_sub_epi32(_mm256_set1_epi32(static_cast<int>(high)), carry);
  auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
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
  return {c0, c1};
}

void philox_words(RngKey key, uint64_t first, int64_t n, uint32_t* w0, uint32_t* w1) {
  // The buffers hold kRandomBlock words, a multiple of eight: the excess is written but not read.
  for (int64_t i = 0; i < n; i += 8) {
    const Words w = eight_blocks(key, first + static_cast<uint64_t>(i));
    _mm256_store_si256(reinterpret_cast<__m256i*>(w0 + i), w.c0);
    if (w1) _mm256_store_si256(reinterpret_cast<__m256i*>(w1 + i), w.c1);
  }
}

#include "tandem/backend/cpu/tile/random_loops.inc"

}  // namespace

const RandomLoops kRandomLoopsAvx2 = {uniform_loop, normal_loop, dropout_loop, masked_loop};

}  // namespace tandem::detail

#endif
