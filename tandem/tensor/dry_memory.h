// SPDX-License-Identifier: Apache-2.0
// Tensors without bytes. A dry run (graph/dry_run.h) makes them in place of real ones, and a
// DryMemory keeps the books: what the allocator would hold at every moment, block by block, in the
// allocator's own sizes. Reading such a tensor throws Unsupported.
#pragma once

#include <vector>

#include "tandem/base/intrusive.h"
#include "tandem/tensor/tensor_impl.h"

namespace tandem {

/// What a block is for.
enum class DryUse : uint8_t {
  tensor,   ///< a value
  scratch,  ///< what a kernel works in: comes and goes within one call
  arena,    ///< the planned memory of a compiled function
};

/// A block came or went.
struct DryEvent {
  int32_t block = 0;   ///< number of the block, counted from 0
  bool taken = true;   ///< false: returned
  uint8_t phase = 0;   ///< what the caller said it was doing, see DryMemory::phase
  int64_t host = 0;    ///< bytes that the process itself holds more than at the start
  int64_t in_use = 0;  ///< bytes that would be in use after it, `host` not counted
};
/// A block that was asked for.
struct DryBlock {
  int64_t bytes = 0;    ///< as asked
  int64_t rounded = 0;  ///< what the allocator sets aside: 0 for a small one cut from a slab
  DryUse use = DryUse::tensor;
  uint8_t phase = 0;   ///< in which it was taken
  uint32_t scope = 0;  ///< layer, see scope_path()
};

/// The books of one dry run. One thread at a time.
class TD_API DryMemory : public RefCounted {
 public:
  DryMemory();
  /// Set aside `bytes`; gives the block's number.
  int32_t take(size_t bytes, DryUse use);
  void give_back(int32_t block) noexcept;

  /// Bytes that would be in use now and at most, in the allocator's blocks. Small blocks count by
  /// the slab that they are cut from, as allocator_stats() counts them; what the run itself really
  /// allocated (headers, tape, small constants) is part of it, since a real run has that too.
  int64_t in_use() const;
  int64_t peak() const { return peak_; }
  /// The event after which most was in use; -1 before the first.
  int64_t peak_event() const { return peak_event_; }
  void reset_peak();

  const std::vector<DryEvent>& events() const { return events_; }
  const std::vector<DryBlock>& blocks() const { return blocks_; }
  /// The block of a dry tensor's storage; -1 for a real one.
  static int32_t block_of(const detail::TensorImpl& t);

  uint8_t phase = 0;   ///< marks what is taken and given back from now on
  uint32_t scope = 0;  ///< likewise

 private:
  void note(int32_t block, bool taken);
  std::vector<DryEvent> events_;
  std::vector<DryBlock> blocks_;
  std::vector<int64_t> idle_small_;  ///< per class: blocks of it that are free again
  int64_t large_ = 0, slab_used_ = 0, peak_ = 0, peak_event_ = -1, host_start_ = 0;
};

namespace detail {
/// The books of this thread's dry run, or nullptr.
TD_API DryMemory* dry_memory();
TD_API void set_dry_memory(DryMemory* m);
/// As new_tensor, but nothing is behind it; the thread must have books.
TD_API TensorImpl* new_dry_tensor(const Shape& shape, DType dtype, Device device,
                                  const Strides* strides = nullptr);
/// Is nothing behind it?
TD_API bool is_dry(const TensorImpl& t);
/// Throws Unsupported for a tensor that nothing is behind.
TD_API void check_has_bytes(const TensorImpl& t, const char* what);
}  // namespace detail

}  // namespace tandem
