// SPDX-License-Identifier: Apache-2.0
// matmul_nbits on codes with AVX2. VPMADDUBSW multiplies bytes and adds pairs in 16 bits: with
// codes of up to 4 bits a pair gives at most 3,810, so that those of several chunks fit. Codes of 8
// bits are widened first.
#include "tandem/backend/cpu/gemm/nbits_integer_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "tandem/backend/cpu/gemm/prefetch_internal.h"
#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

constexpr const char* kName = "AVX2";

struct Dot {
  template <int bits>
  static constexpr int64_t kSpan = bits == 2 ? 8 : 4;
  template <int bits>
  static __m256i add(__m256i sum, __m256i codes, __m256i x) {
    if constexpr (bits < 8) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
    const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xff)),
                  odd = _mm256_srli_epi16(codes, 8);
    sum = _mm256_add_epi32(sum,
                           _mm256_madd_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8)));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(odd, _mm256_srai_epi16(x, 8)));
    return sum;
  }
  template <int bits>
  static __m256i total(__m256i sum) {
    return bits < 8 ? _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) : sum;
  }
};

#include "tandem/backend/cpu/gemm/nbits_integer_256.inc"
//
#include "tandem/backend/cpu/gemm/nbits_integer_loops.inc"

}  // namespace

const NBitsIntegerLoops kNBitsIntegerAvx2 = kNBitsIntegersHere;

}  // namespace tandem::detail

#else

namespace tandem::detail {
const NBitsIntegerLoops kNBitsIntegerAvx2{};
}

#endif
