// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/memory/caching_allocator_internal.h"

#include <algorithm>

namespace tandem::plan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kUnit = 512, kSmall = kMiB, kSmallSegment = 2 * kMiB;
constexpr int64_t kOwnFrom = 10 * kMiB, kLargeSegment = 20 * kMiB, kOwnUnit = 2 * kMiB;

int64_t up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

void CachingAllocator::take(int32_t id, int64_t bytes) {
  const int64_t want = std::max(kUnit, up_to(bytes, kUnit));
  const bool large = want > kSmall;
  Free& free = free_[large ? 1 : 0];
  auto found = free.lower_bound({want, INT64_MIN});
  if (found == free.end()) {
    const int64_t segment = !large            ? kSmallSegment
                            : want < kOwnFrom ? kLargeSegment
                                              : up_to(want, kOwnUnit);
    if (tight_ && now_ + segment > reserved_) release_free_segments();
    blocks_[next_] = {segment, next_, large, true};
    found = free.insert({segment, next_}).first;
    now_ += segment;
    reserved_ = std::max(reserved_, now_);
    next_ += segment + kUnit;  // segments do not touch
  }
  const int64_t at = found->second;
  free.erase(found);
  Block& b = blocks_.at(at);
  b.free = false;
  const int64_t rest = b.bytes - want;
  if (large ? rest > kSmall : rest >= kUnit) {
    b.bytes = want;
    blocks_[at + want] = {rest, b.segment, large, true};
    free.insert({rest, at + want});
  }
  address_[id] = at;
}

void CachingAllocator::release_free_segments() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const bool whole = block->second.segment == block->first &&
                       (next == blocks_.end() || next->second.segment != block->first);
    if (whole && block->second.free) {
      free_of(block->second).erase({block->second.bytes, block->first});
      now_ -= block->second.bytes;
      blocks_.erase(block);
    }
    block = next;
  }
}

void CachingAllocator::merge(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.free || !block->second.free ||
      next->second.segment != block->second.segment)
    return;
  Free& free = free_of(block->second);
  free.erase({block->second.bytes, block->first});
  free.erase({next->second.bytes, next->first});
  block->second.bytes += next->second.bytes;
  free.insert({block->second.bytes, block->first});
  blocks_.erase(next);
}

void CachingAllocator::give_back(int32_t id) {
  const auto known = address_.find(id);
  if (known == address_.end()) return;
  const auto block = blocks_.find(known->second);
  address_.erase(known);
  block->second.free = true;
  free_of(block->second).insert({block->second.bytes, block->first});
  merge(block);
  if (block != blocks_.begin()) merge(std::prev(block));
}

}  // namespace tandem::plan
