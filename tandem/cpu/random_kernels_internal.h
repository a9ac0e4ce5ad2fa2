// SPDX-License-Identifier: Apache-2.0
// Words of Philox for runs of elements: what the random kernels are made of. Every variant gives
// the same words.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// Words 0 (and 1, unless `w1` is null) of the blocks of elements first .. first + n - 1.
using PhiloxWordsFn = void (*)(uint64_t seed, uint32_t offset, uint64_t first, int64_t n,
                               uint32_t* w0, uint32_t* w1);
void philox_words_base(uint64_t seed, uint32_t offset, uint64_t first, int64_t n, uint32_t* w0,
                       uint32_t* w1);
void philox_words_avx2(uint64_t seed, uint32_t offset, uint64_t first, int64_t n, uint32_t* w0,
                       uint32_t* w1);

}  // namespace tandem::detail
