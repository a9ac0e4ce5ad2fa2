// SPDX-License-Identifier: Apache-2.0
// Pooling loops for AVX-512.
#include <algorithm>
#include <type_traits>

#include "tandem/cpu/pool_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/cpu/pool_loops.inc"
}  // namespace

constinit const PoolTables kPoolAvx512 = kTables;

}  // namespace tandem::detail
