// SPDX-License-Identifier: Apache-2.0
// The caching allocator of host memory (tensor/device_memory.h has the others'): per-thread free
// lists by size class for small blocks, a shared cache of 2 MB-rounded huge-page blocks for large
// ones. Blocks are 64-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/base/export.h"

namespace tandem {

struct AllocatorStats {
  int64_t in_use = 0;    ///< bytes handed out and not returned
  int64_t peak = 0;      ///< highest in_use since start or reset_allocator_peak()
  int64_t cached = 0;    ///< bytes kept for reuse
  int64_t reserved = 0;  ///< in_use + cached: held from the system
  int64_t allocations = 0;
};
/// Statistics of the whole process. Small blocks are counted by the slab they come from.
TD_API AllocatorStats allocator_stats();
TD_API void reset_allocator_peak();
/// Highest number of bytes to hold; an allocation beyond it throws Memory. 0: unlimited.
TD_API void set_allocator_cap(int64_t bytes);
/// Return cached large blocks to the system; returns the bytes freed.
TD_API int64_t trim_allocator();

namespace detail {
/// 64-byte aligned block of at least `bytes`; throws Memory.
TD_API void* allocate(size_t bytes);
/// Return a block of allocate(bytes); any thread.
TD_API void deallocate(void* p, size_t bytes) noexcept;
}  // namespace detail

}  // namespace tandem
