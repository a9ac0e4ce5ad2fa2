// SPDX-License-Identifier: Apache-2.0
// The random loops for any processor.
#include <bit>

#include "tandem/backend/cpu/tile/random_kernels_internal.h"
#include "tandem/base/philox.h"

namespace tandem::detail {
namespace {

void philox_words(RngKey key, uint64_t first, int64_t n, uint32_t* w0, uint32_t* w1) {
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxBlock b = philox(key.seed, key.offset, first + static_cast<uint64_t>(i));
    w0[i] = b.w[0];
    if (w1) w1[i] = b.w[1];
  }
}

#include "tandem/backend/cpu/tile/random_loops.inc"

}  // namespace

const RandomLoops kRandomLoopsBase = {uniform_loop, normal_loop, dropout_loop, masked_loop};

}  // namespace tandem::detail
