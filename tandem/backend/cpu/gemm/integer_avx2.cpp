// SPDX-License-Identifier: Apache-2.0
// Integer tiles of 6 rows and two vectors of 8 sums (VPMADDWD), and of 3 rows and four vectors,
// whose weights are 16 bits wide: operands in memory, and half the broadcasts. Called only where
// the processor has AVX2.
#include "tandem/backend/cpu/gemm/integer_internal.h"
#include "tandem/backend/cpu/partial_store_internal.h"
#include "tandem/base/unroll_internal.h"

#ifdef __AVX2__
#include <immintrin.h>

#include <cstring>
#include <utility>

namespace tandem::detail {
namespace {

const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct Avx2 {
  using V = __m256i;
  static constexpr int kWidth = 8, kRows = 6;
  static V zero() { return _mm256_setzero_si256(); }
  static V pair(const int16_t* a) {
    int32_t two;
    std::memcpy(&two, a, sizeof two);
    return _mm256_set1_epi32(two);
  }
  static V weight(const int8_t* w) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
  }
  static V short_weight(const int8_t* w) {
    return _mm256_loadu_si256(reinterpret_cast<const V*>(w));
  }
  static V add_products(V c, V a, V w) { return _mm256_add_epi32(c, _mm256_madd_epi16(a, w)); }
  static V mask(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const V*>(kMasks + kWidth - (n < 0 ? 0 : n)));
  }
  static V load(const int32_t* from, int64_t n) {
    if (n >= kWidth) return _mm256_loadu_si256(reinterpret_cast<const V*>(from));
    return _mm256_maskload_epi32(from, mask(n));
  }
  static void store(int32_t* to, int64_t n, V v) {
    if (n >= kWidth) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
    if (n > 0)
      store_first(reinterpret_cast<float*>(to), static_cast<int>(n), _mm256_castsi256_ps(v));
  }
};

#include "tandem/backend/cpu/gemm/integer_loops.inc"

constexpr IntegerLoops with_short_tiles(IntegerLoops loops) {
  loops.short_tile[0] = integer_tile<Avx2, 1, 4, 2>;
  loops.short_tile[1] = integer_tile<Avx2, 2, 4, 2>;
  loops.short_tile[2] = integer_tile<Avx2, 3, 4, 2>;
  return loops;
}

}  // namespace

constinit const IntegerLoops kIntegerAvx2 =
    with_short_tiles(integer_table<Avx2>(std::make_integer_sequence<int, Avx2::kRows>()));

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerLoops kIntegerAvx2 = {};
}
#endif
