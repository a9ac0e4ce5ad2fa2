// SPDX-License-Identifier: Apache-2.0
// Tensors without bytes. A dry run (graph/dry_run.h) creates them instead of real ones, and a
// DryMemory keeps the ledger: what the allocator would hold at every moment, block by block, in the
// allocator's own sizes. Reading such a tensor throws Unsupported.
#pragma once

#include <vector>

#include "tandem/base/intrusive.h"
#include "tandem/tensor/tensor_impl.h"

namespace tandem {

/// What a block is for.
enum class DryUse : uint8_t {
  tensor,   ///< a value
  scratch,  ///< a kernel's workspace, released within the call
  arena,    ///< the planned memory of a compiled function
};

/// A block was taken or returned.
struct DryEvent {
  int32_t block = 0;   ///< number of the block, counted from 0
  bool taken = true;   ///< false: returned
  uint8_t phase = 0;   ///< as set by the caller, see DryMemory::phase
  int64_t host = 0;    ///< bytes that the process itself holds beyond the start
  int64_t in_use = 0;  ///< bytes that would be in use after it, `host` not counted
};
/// A requested block.
struct DryBlock {
  int64_t bytes = 0;    ///< as requested
  int64_t rounded = 0;  ///< what the allocator takes: 0 for a small block cut from a slab
  DryUse use = DryUse::tensor;
  uint8_t phase = 0;   ///< in which it was taken
  uint32_t scope = 0;  ///< layer, see scope_path()
};

/// The ledger of one dry run. One thread at a time.
class TD_API DryMemory : public RefCounted {
 public:
  DryMemory();
  /// Take `bytes`; returns the block's number.
  int32_t take(size_t bytes, DryUse use);
  void give_back(int32_t block) noexcept;

  /// Bytes that would be in use now and at most, in the allocator's blocks. Small blocks count by
  /// the slab they are cut from, as in allocator_stats(); the run's own real allocations (headers,
  /// tape, small constants) are included, since a real run has them too.
  int64_t in_use() const;
  int64_t peak() const { return peak_; }
  /// The event after which the most memory was in use; -1 before the first.
  int64_t peak_event() const { return peak_event_; }
  void reset_peak();

  const std::vector<DryEvent>& events() const { return events_; }
  const std::vector<DryBlock>& blocks() const { return blocks_; }
  /// The block of a dry tensor's storage; -1 for a real one.
  static int32_t block_of(const detail::TensorImpl& t);

  uint8_t phase = 0;   ///< marks blocks taken and returned from now on
  uint32_t scope = 0;  ///< likewise

 private:
  void note(int32_t block, bool taken);
  std::vector<DryEvent> events_;
  std::vector<DryBlock> blocks_;
  std::vector<int64_t> idle_small_;  ///< per class: its free blocks
  int64_t large_ = 0, slab_used_ = 0, peak_ = 0, peak_event_ = -1, host_start_ = 0;
};

namespace detail {
/// The ledger of this thread's dry run, or nullptr.
TD_API DryMemory* dry_memory();
TD_API void set_dry_memory(DryMemory* m);
/// Like new_tensor, but without memory; the thread must have a ledger.
TD_API TensorImpl* new_dry_tensor(const Shape& shape, DType dtype, Device device,
                                  const Strides* strides = nullptr);
/// Whether it has no memory.
TD_API bool is_dry(const TensorImpl& t);
/// Throws Unsupported for a tensor of a dry run; a deferred value (lazy.h) is computed.
TD_API void check_has_bytes(const TensorImpl& t, const char* what);
}  // namespace detail

}  // namespace tandem
