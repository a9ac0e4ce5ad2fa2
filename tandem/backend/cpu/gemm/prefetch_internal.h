// SPDX-License-Identifier: Apache-2.0
// Weights that come from memory are requested long before they are needed: a processor that finds
// the way by itself stops at pages.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// Fetches the cache line that lies `bytes` after `from`. It may lie beyond the weight: an address
/// is all that is made of it.
template <int kLocality>
[[gnu::always_inline]] inline void prefetch_after(const void* from, int64_t bytes) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) +
                                                   static_cast<uintptr_t>(bytes)),
                     0, kLocality);
}

}  // namespace tandem::detail
