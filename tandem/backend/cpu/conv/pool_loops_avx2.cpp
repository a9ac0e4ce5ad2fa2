// SPDX-License-Identifier: Apache-2.0
// Pooling loops for AVX2.
#include <algorithm>
#include <type_traits>

#include "tandem/backend/cpu/conv/pool_internal.h"

namespace tandem::detail {
namespace {
constexpr int kVectorBytes = 32;
#include "tandem/backend/cpu/conv/pool_loops.inc"
}  // namespace

constinit const PoolTables kPoolAvx2 = kTables;

}  // namespace tandem::detail
