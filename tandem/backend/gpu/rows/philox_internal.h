// SPDX-License-Identifier: Apache-2.0
// base/philox.h in the kernels' dialect: the same words, uniform and normal numbers to the bit.
#pragma once

#include "tandem/backend/gpu/engine_internal.h"

namespace tandem::gpu {

/// td_philox(seed, offset, element, draw) gives a td_block_of_words; td_uniform_f64 ... of words.
extern const char* const kPhilox;
/// The parameters seed (i64) and offset (i32), and the functions above.
void declare_key(KernelSource& k);
void argue_key(Arguments& a, const RngKey& key);

}  // namespace tandem::gpu
