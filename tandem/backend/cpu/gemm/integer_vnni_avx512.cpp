// SPDX-License-Identifier: Apache-2.0
// Integer tiles of 12 rows and two vectors of 16 sums (VPDPWSSD, which multiplies and adds at
// once). Called only where the processor has AVX-512 VNNI.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AVX512VNNI__
#include "tandem/backend/cpu/gemm/integer_vectors_internal.h"

namespace tandem::detail {
namespace {

struct Vnni : IntegerVectors512 {
  static V add_products(V c, V a, V w) { return _mm512_dpwssd_epi32(c, a, w); }
};

#include "tandem/backend/cpu/gemm/integer_loops.inc"

}  // namespace

constinit const IntegerLoops kIntegerVnni =
    integer_table<Vnni>(std::make_integer_sequence<int, Vnni::kRows>());

}  // namespace tandem::detail

#else
namespace tandem::detail {
constinit const IntegerLoops kIntegerVnni = {};
}
#endif
