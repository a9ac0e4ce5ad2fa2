// SPDX-License-Identifier: Apache-2.0
// PyTorch's caching allocator for GPUs, simulated: what it takes from the device for a
// sequence of blocks that come and go. Its rules are public (pytorch/pytorch,
// c10/cuda/CUDACachingAllocator): sizes in multiples of 512 B; blocks up to 1 MiB are cut from
// segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger ones get segments of their own in
// multiples of 2 MiB; the smallest free block that is large enough is taken, the rest of it split
// off, and free neighbours grow together. Segments are kept until the card is full: then those that
// are wholly free are given back. Not installed.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

#include "tandem/base/export.h"

namespace tandem::plan {

class TD_API CachingAllocator {
 public:
  /// `tight`: the card is as full as it gets, so before more is taken than ever before, free
  /// segments are given back, and reserved() is the least that a card must have.
  explicit CachingAllocator(bool tight = false) : tight_(tight) {}
  void take(int32_t id, int64_t bytes);
  void give_back(int32_t id);
  /// Bytes of all segments, at most.
  int64_t reserved() const { return reserved_; }

 private:
  struct Block {
    int64_t bytes;
    int64_t segment;  ///< address at which its segment begins
    bool large, free;
  };
  using Blocks = std::map<int64_t, Block>;             // by address
  using Free = std::set<std::pair<int64_t, int64_t>>;  // bytes and address
  Free& free_of(const Block& b) { return free_[b.large ? 1 : 0]; }
  void merge(Blocks::iterator block);
  void release_free_segments();

  Blocks blocks_;
  Free free_[2];
  std::unordered_map<int32_t, int64_t> address_;
  bool tight_;
  int64_t reserved_ = 0, now_ = 0, next_ = 0;
};

}  // namespace tandem::plan
