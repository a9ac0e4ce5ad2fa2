// SPDX-License-Identifier: Apache-2.0
// Integer tiles of 12 rows and two vectors of 16 sums (VPMADDWD). Called only where the processor
// has AVX-512 BW.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AVX512BW__
#include "tandem/backend/cpu/gemm/integer_vectors_internal.h"

namespace tandem::detail {
namespace {

struct Avx512 : IntegerVectors512 {
  static V add_products(V c, V a, V w) { return _mm512_add_epi32(c, _mm512_madd_epi16(a, w)); }
};

#include "tandem/backend/cpu/gemm/integer_loops.inc"

}  // namespace

constinit const IntegerLoops kIntegerAvx512 =
    integer_table<Avx512>(std::make_integer_sequence<int, Avx512::kRows>());

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerLoops kIntegerAvx512 = {};
}
#endif
