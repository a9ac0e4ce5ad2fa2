// SPDX-License-Identifier: Apache-2.0
// Times counted in buckets whose width is at most a 32nd of the time: quantiles with 3 % error from
// nanoseconds to hours, in 8 kB. Adding is one atomic increment.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "tandem/base/export.h"

namespace tandem::serve {

class Histogram {
 public:
  void add(double seconds) {
    const double nanoseconds = seconds < 0 ? 0 : seconds > 1e6 ? 1e15 : seconds * 1e9;
    const auto n = static_cast<uint64_t>(nanoseconds);
    buckets_[bucket(n)].fetch_add(1, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(n, std::memory_order_relaxed);
  }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return static_cast<double>(sum_.load(std::memory_order_relaxed)) * 1e-9; }
  /// The time that the part `q` (0..1) of all does not exceed, in seconds; 0 without any.
  double quantile(double q) const {
    const auto wanted = static_cast<uint64_t>(q * static_cast<double>(count()) + 0.999999);
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i].load(std::memory_order_relaxed);
      if (seen >= wanted && seen > 0) return middle(i);
    }
    return 0;
  }
  /// How many took at most so long, as exactly as buckets tell.
  uint64_t at_most(double seconds) const {
    uint64_t n = 0;
    for (size_t i = 0; i < kBuckets && middle(i) <= seconds; ++i)
      n += buckets_[i].load(std::memory_order_relaxed);
    return n;
  }

  /// Calls f(seconds, how many) for each bucket that holds something, shortest times first.
  template <class F>
  void each(const F& f) const {
    for (size_t i = 0; i < kBuckets; ++i)
      if (const uint64_t n = buckets_[i].load(std::memory_order_relaxed)) f(middle(i), n);
  }

 private:
  static constexpr size_t kParts = 16, kBuckets = 48 * kParts;
  static size_t bucket(uint64_t n) {
    if (n < kParts) return static_cast<size_t>(n);
    const auto shift = static_cast<size_t>(std::bit_width(n)) - 5;
    const size_t at = (shift + 1) * kParts + static_cast<size_t>(n >> shift) - kParts;
    return at < kBuckets ? at : kBuckets - 1;
  }
  static double middle(size_t i) {
    if (i < kParts) return static_cast<double>(i) * 1e-9;
    const size_t shift = i / kParts - 1;
    const auto low = static_cast<double>((i % kParts + kParts) << shift);
    return (low + static_cast<double>(uint64_t{1} << shift) / 2) * 1e-9;
  }
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> count_{0}, sum_{0};
};

}  // namespace tandem::serve
