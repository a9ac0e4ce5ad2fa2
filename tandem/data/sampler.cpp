// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/philox.h"

namespace tandem::data {
namespace {

// Draw i of an epoch: 64 bits.
uint64_t draw(uint64_t seed, int64_t epoch, int64_t i) {
  return philox(seed, static_cast<uint32_t>(epoch), static_cast<uint64_t>(i), 0).word64(0);
}

}  // namespace

std::vector<int64_t> sequential_order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> shuffled_order(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order = sequential_order(n);
  for (int64_t i = n - 1; i > 0; --i) {
    // Multiply-high maps 64 bits to 0..i; its bias is below i / 2^64.
    auto k = static_cast<size_t>(
        static_cast<unsigned __int128>(draw(seed, epoch, i)) * static_cast<uint64_t>(i + 1) >> 64);
    std::swap(order[static_cast<size_t>(i)], order[k]);
  }
  return order;
}

std::vector<int64_t> weighted_order(const std::vector<double>& weights, int64_t draws,
                                    uint64_t seed, int64_t epoch) {
  std::vector<double> sums(weights.size());
  double total = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    TD_CHECK(weights[i] >= 0 && std::isfinite(weights[i]), Value,
             "weight {} is {}, it must be >= 0", i, weights[i]);
    sums[i] = total += weights[i];
  }
  TD_CHECK(total > 0, Value, "all weights are 0");
  std::vector<int64_t> order(static_cast<size_t>(draws));
  for (int64_t i = 0; i < draws; ++i) {
    double u = static_cast<double>(draw(seed, epoch, i) >> 11) * 0x1p-53 * total;
    auto at = std::upper_bound(sums.begin(), sums.end(), u) - sums.begin();
    order[static_cast<size_t>(i)] = std::min<int64_t>(at, static_cast<int64_t>(sums.size()) - 1);
  }
  return order;
}

std::vector<int64_t> part_of_order(const std::vector<int64_t>& order, int64_t rank, int64_t ranks) {
  TD_CHECK(ranks > 0 && rank >= 0 && rank < ranks, Value, "rank {} of {}", rank, ranks);
  auto n = static_cast<int64_t>(order.size());
  int64_t each = (n + ranks - 1) / ranks;
  std::vector<int64_t> part;
  for (int64_t i = 0; i < each; ++i)
    part.push_back(order[static_cast<size_t>((rank + i * ranks) % n)]);
  return part;
}

Permutation::Permutation(int64_t n, uint64_t seed, int64_t epoch) : n_(n) {
  TD_CHECK(n >= 0, Value, "a permutation of {} indices", n);
  if (n <= int64_t{1} << 22) {
    table_ = shuffled_order(n, seed, epoch);
    return;
  }
  for (size_t k = 0; k < keys_.size(); ++k) keys_[k] = draw(seed, epoch, static_cast<int64_t>(k));
  while (half_ < 31 && int64_t{1} << 2 * half_ < n) ++half_;
}

int64_t Permutation::walk(int64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_) - 1;
  auto x = static_cast<uint64_t>(i);
  do {  // the network permutes 0 .. 4^half - 1; values outside 0 .. n-1 are mapped again (at most 4
        // on average)
    uint64_t left = x >> half_, right = x & mask;
    for (uint64_t key : keys_) left = std::exchange(right, left ^ (hash_mix(right ^ key) & mask));
    x = left << half_ | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace tandem::data
