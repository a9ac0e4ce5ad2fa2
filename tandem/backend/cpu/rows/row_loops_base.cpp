// SPDX-License-Identifier: Apache-2.0
// Row loops for the baseline processor.
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"

namespace tandem::detail {
namespace {
#include "tandem/backend/cpu/rows/row_loops.inc"
}  // namespace

constinit const RowLoops kRowsBase = kLoops;

}  // namespace tandem::detail
