// SPDX-License-Identifier: Apache-2.0
// BlockPool: who holds which blocks of a PagedCache. Blocks that are full stay findable by the
// tokens in them and before them until their room is needed, so that texts which begin alike share
// what was computed for the first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::serve {

class TD_API BlockPool {
 public:
  /// Blocks 1 .. count - 1 of `block` tokens; block 0 is never given out.
  BlockPool(int64_t count, int64_t block);

  int64_t block() const { return block_; }
  /// Blocks that nobody holds.
  int64_t available() const;
  int64_t count() const { return static_cast<int64_t>(entries_.size()) - 1; }
  /// A block for one holder; nothing where all are held. What lay in it for longest unused is
  /// forgotten.
  std::optional<int64_t> take();
  void release(int64_t block);

  /// The block of these tokens after a text whose last block is `before` (0: none), held once more
  /// by the caller; nothing where it is not known. Below 0 it is none, too: texts that begin with
  /// different ones share nothing, as those of different adapters.
  std::optional<int64_t> find(int64_t before, const std::vector<int64_t>& tokens);
  /// `block`, which the caller holds, is full. Another of the same content may be known already:
  /// then this one stays unknown.
  void publish(int64_t before, std::vector<int64_t> tokens, int64_t block);

 private:
  /// What a text is known by: its last block's content has a number that never comes again, so a
  /// block that is used again does not answer for what it held before.
  using Key = std::pair<uint64_t, std::vector<int64_t>>;
  struct Entry {
    int64_t holders = 0;
    uint64_t content = 0;  ///< 0: not known
    uint64_t since = 0;    ///< when it was released: the place in `idle_`
    Key key = {};
  };
  uint64_t content_of(int64_t block) const;
  void forget(Entry& e);

  int64_t block_;
  std::vector<Entry> entries_;
  std::vector<int64_t> empty_;
  std::map<uint64_t, int64_t> idle_;  ///< known and held by nobody, longest first
  std::map<Key, int64_t> known_;
  uint64_t next_content_ = 1, now_ = 0;
};

}  // namespace tandem::serve
