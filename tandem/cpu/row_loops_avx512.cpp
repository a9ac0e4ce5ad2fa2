// SPDX-License-Identifier: Apache-2.0
// Row loops for AVX-512.
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "tandem/base/math_prelude.h"
#include "tandem/cpu/row_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/cpu/row_loops.inc"
}  // namespace

constinit const RowLoops kRowsAvx512 = kLoops;

}  // namespace tandem::detail
