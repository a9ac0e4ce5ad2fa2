// SPDX-License-Identifier: Apache-2.0
// The order in which a loader visits its samples. A shuffled order is a function of (seed, epoch)
// alone: no thread, batch size or earlier epoch changes it.
#pragma once

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
/// The part of an order that belongs to `rank` of `ranks`, all parts of equal length: the order
/// is filled up from its front.
TD_API std::vector<int64_t> part_of_order(const std::vector<int64_t>& order, int64_t rank,
                                          int64_t ranks);

}  // namespace tandem::data
