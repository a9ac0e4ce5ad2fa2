// SPDX-License-Identifier: Apache-2.0
// Pooling loops for the baseline processor.
#include <algorithm>
#include <type_traits>

#include "tandem/cpu/pool_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/cpu/pool_loops.inc"
}  // namespace

constinit const PoolTables kPoolBase = kTables;

}  // namespace tandem::detail
