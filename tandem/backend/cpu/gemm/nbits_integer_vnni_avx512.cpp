// SPDX-License-Identifier: Apache-2.0
// matmul_nbits on codes with VPDPBUSD, which adds four products of unsigned and signed bytes in 32
// bits. Vectors of 256 bits: reading the codes takes longer than multiplying them. Called only
// where the processor has AVX-512 VNNI.
#include "tandem/backend/cpu/gemm/nbits_integer_internal.h"

#ifdef __AVX512VNNI__
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

constexpr const char* kName = "AVX-512 VNNI";

struct Dot {
  template <int bits>
  static constexpr int64_t kSpan = int64_t{1} << 20;
  template <int bits>
  static __m256i add(__m256i sum, __m256i codes, __m256i x) {
    return _mm256_dpbusd_epi32(sum, codes, x);
  }
  template <int bits>
  static __m256i total(__m256i sum) {
    return sum;
  }
};

#include "tandem/backend/cpu/gemm/nbits_integer_256.inc"
//
#include "tandem/backend/cpu/gemm/nbits_integer_loops.inc"

}  // namespace

const NBitsIntegerLoops kNBitsIntegerVnni = kNBitsIntegersHere;

}  // namespace tandem::detail

#else

namespace tandem::detail {
const NBitsIntegerLoops kNBitsIntegerVnni{};
}

#endif
