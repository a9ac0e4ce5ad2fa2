// SPDX-License-Identifier: Apache-2.0
// The order in which a loader visits its samples. A shuffled order depends only on (seed, epoch),
// not on threads, batch size or earlier epochs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::data {

/// 0 .. n-1.
TD_API std::vector<int64_t> sequential_order(int64_t n);
/// A permutation of 0 .. n-1 (Fisher-Yates over Philox keyed by seed and epoch).
TD_API std::vector<int64_t> shuffled_order(int64_t n, uint64_t seed, int64_t epoch);
/// `draws` indices with probability weight / sum, with replacement, by (seed, epoch). Throws Value
/// on a negative or NaN weight or when all are 0.
TD_API std::vector<int64_t> weighted_order(const std::vector<double>& weights, int64_t draws,
                                           uint64_t seed, int64_t epoch);
/// The part of an order that belongs to `rank` of `ranks`; all parts have equal length: the order
/// is extended from its front.
TD_API std::vector<int64_t> part_of_order(const std::vector<int64_t>& order, int64_t rank,
                                          int64_t ranks);

/// A permutation of 0 .. n-1 by (seed, epoch), one index at a time. Up to 2^22 indices it is the
/// table of shuffled_order(); beyond, a Feistel network of eight rounds with keys from Philox that
/// needs no table.
class TD_API Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, int64_t epoch);
  int64_t operator[](int64_t i) const {
    return table_.empty() ? walk(i) : table_[static_cast<std::size_t>(i)];
  }
  int64_t size() const { return n_; }

 private:
  int64_t walk(int64_t i) const;
  int64_t n_;
  std::array<uint64_t, 8> keys_{};  ///< one per round
  int half_ = 1;                    ///< bits in each half of the network
  std::vector<int64_t> table_;
};

}  // namespace tandem::data
