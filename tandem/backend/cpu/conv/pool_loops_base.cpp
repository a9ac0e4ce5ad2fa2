// SPDX-License-Identifier: Apache-2.0
// Pooling loops for the baseline processor.
#include <algorithm>
#include <type_traits>

#include "tandem/backend/cpu/conv/pool_internal.h"

namespace tandem::detail {
namespace {
constexpr int kVectorBytes = 16;
#include "tandem/backend/cpu/conv/pool_loops.inc"
}  // namespace

constinit const PoolTables kPoolBase = kTables;

}  // namespace tandem::detail
