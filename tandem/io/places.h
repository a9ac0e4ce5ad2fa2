// SPDX-License-Identifier: Apache-2.0
// Offsets of the items of a file, in bounded memory: for a long file only every 2nd, 4th, ...
// offset is kept, and a reader scans forward from the nearest one before the item it wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::io {

template <class Place>
class Places {
 public:
  /// Keeps at most `most` places (a power of two).
  explicit Places(size_t most = size_t{1} << 19) : most_(most) {}
  /// Adds the place of the next item.
  void add(Place place) {
    if (size_++ % every_ != 0) return;
    kept_.push_back(std::move(place));
    if (kept_.size() < most_) return;
    for (size_t k = 0; 2 * k < kept_.size(); ++k) kept_[k] = std::move(kept_[2 * k]);
    kept_.resize((kept_.size() + 1) / 2);
    every_ *= 2;
  }
  /// Items added so far.
  int64_t size() const { return size_; }
  /// The distance between kept places, in items.
  int64_t every() const { return every_; }
  /// The last kept place at or before item i, which lies i % every() items further on.
  const Place& before(int64_t i) const { return kept_[static_cast<size_t>(i / every_)]; }

 private:
  size_t most_;
  int64_t size_ = 0, every_ = 1;
  std::vector<Place> kept_;
};

}  // namespace tandem::io
