// SPDX-License-Identifier: Apache-2.0
// Row loops for AVX-512.
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"

namespace tandem::detail {
namespace {
#include "tandem/backend/cpu/rows/row_loops.inc"
}  // namespace

constinit const RowLoops kRowsAvx512 = kLoops;

}  // namespace tandem::detail
