// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/block_pool.h"

#include "tandem/base/error.h"

namespace tandem::serve {

BlockPool::BlockPool(int64_t count, int64_t block) : block_(block) {
  TD_CHECK(count > 1 && block > 0, Value, "a pool expects at least 2 blocks, got {} of {} tokens",
           count, block);
  entries_.resize(static_cast<size_t>(count));
  for (int64_t b = count; b-- > 1;) empty_.push_back(b);
}

int64_t BlockPool::available() const { return static_cast<int64_t>(empty_.size() + idle_.size()); }

std::optional<int64_t> BlockPool::take() {
  int64_t b = 0;
  if (!empty_.empty()) {
    b = empty_.back();
    empty_.pop_back();
  } else if (!idle_.empty()) {
    b = idle_.begin()->second;
    idle_.erase(idle_.begin());
    forget(entries_[static_cast<size_t>(b)]);
  } else {
    return std::nullopt;
  }
  entries_[static_cast<size_t>(b)].holders = 1;
  return b;
}

void BlockPool::release(int64_t block) {
  Entry& e = entries_.at(static_cast<size_t>(block));
  TD_ASSERT(e.holders > 0);
  if (--e.holders > 0) return;
  if (e.content == 0) {
    empty_.push_back(block);
    return;
  }
  e.since = ++now_;
  idle_.emplace(e.since, block);
}

std::optional<int64_t> BlockPool::find(int64_t before, const std::vector<int64_t>& tokens) {
  if (before > 0 && content_of(before) == 0) return std::nullopt;
  const auto at = known_.find({content_of(before), tokens});
  if (at == known_.end()) return std::nullopt;
  Entry& e = entries_[static_cast<size_t>(at->second)];
  if (e.holders++ == 0) idle_.erase(e.since);
  return at->second;
}

void BlockPool::publish(int64_t before, std::vector<int64_t> tokens, int64_t block) {
  Entry& e = entries_.at(static_cast<size_t>(block));
  // After a block that another of the same content hides, nothing could be found.
  if (e.content != 0 || (before > 0 && content_of(before) == 0)) return;
  Key key{content_of(before), std::move(tokens)};
  if (!known_.emplace(key, block).second) return;
  e.content = next_content_++;
  e.key = std::move(key);
}

uint64_t BlockPool::content_of(int64_t block) const {
  if (block < 0) return static_cast<uint64_t>(block);
  return entries_[static_cast<size_t>(block)].content;
}

void BlockPool::forget(Entry& e) {
  known_.erase(e.key);
  e.key = {};
  e.content = 0;
}

}  // namespace tandem::serve
