// SPDX-License-Identifier: Apache-2.0
// base/philox.h in the kernels' dialect: the same words, uniform and normal numbers to the bit.
#pragma once

#include "tandem/backend/gpu/engine_internal.h"

namespace tandem::gpu {

/// td_philox(seed, offset, element, draw) gives a td_block_of_words; td_uniform_f64 ... of words.
extern const char* const kPhilox;
/// The words TD_SEED and TD_OFFSET of a body, their parameters, and the functions above. A recorded
/// call takes both from the device's memory, where those of each replay are.
void declare_key(KernelSource& k);
void argue_key(Arguments& a, const KernelCall& c);

}  // namespace tandem::gpu
