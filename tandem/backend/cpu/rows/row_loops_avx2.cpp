// SPDX-License-Identifier: Apache-2.0
// Row loops for AVX2.
#include <immintrin.h>

#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"

namespace tandem::detail {
namespace {
#include "tandem/backend/cpu/rows/row_loops.inc"
}  // namespace

constinit const RowLoops kRowsAvx2 = kLoops;

}  // namespace tandem::detail
