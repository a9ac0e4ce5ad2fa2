// SPDX-License-Identifier: Apache-2.0
// Positions of a shape in row-major order, with their offsets in several arrays at once. The loops
// of the index rows walk them in runs along the last dimension. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "tandem/tensor/shape.h"

namespace tandem::detail {

class Positions {
 public:
  static constexpr int kMaxSets = kMaxRank + 1;

  Positions() = default;
  /// One set of strides for each array. A single-element dimension is dropped; dimensions that
  /// every array stores as one are merged.
  Positions(const int64_t* shape, int rank, std::initializer_list<const int64_t*> strides)
      : Positions(shape, rank, strides.begin(), static_cast<int>(strides.size())) {}
  Positions(const int64_t* shape, int rank, const int64_t* const* strides, int sets) : sets_(sets) {
    for (int i = 0; i < rank; ++i) {
      count_ *= shape[i];
      if (shape[i] == 1) continue;
      size_[rank_] = shape[i];
      for (int s = 0; s < sets; ++s) stride_[s][rank_] = strides[s][i];
      if (rank_ > 0 && merge(rank_ - 1)) continue;
      ++rank_;
    }
  }

  int64_t count() const { return count_; }
  /// Distance of neighbours within a run, in array `set`.
  int64_t step(int set) const { return rank_ ? stride_[set][rank_ - 1] : 1; }
  /// All positions are one run, in which array `set` is dense.
  bool dense(int set) const { return rank_ == 0 || (rank_ == 1 && stride_[set][0] == 1); }

  /// f(position, length, offset in each array) for the runs of positions [first, first + n).
  template <class F>
  void runs(int64_t first, int64_t n, F&& f) const {
    if (n <= 0) return;
    const int last = rank_ - 1;
    int64_t at[kMaxRank], offset[kMaxSets] = {};
    for (int64_t i = last, k = first; i >= 0; --i) {
      at[i] = k % size_[i];
      k /= size_[i];
      for (int s = 0; s < sets_; ++s) offset[s] += at[i] * stride_[s][i];
    }
    for (const int64_t end = first + n;;) {
      const int64_t m = rank_ ? std::min(end - first, size_[last] - at[last]) : 1;
      f(first, m, static_cast<const int64_t*>(offset));
      first += m;
      if (first >= end) return;
      for (int s = 0; s < sets_; ++s) offset[s] += m * stride_[s][last];
      at[last] += m;
      for (int i = last; i > 0 && at[i] == size_[i]; --i) {
        at[i] = 0;
        ++at[i - 1];
        for (int s = 0; s < sets_; ++s) offset[s] += stride_[s][i - 1] - size_[i] * stride_[s][i];
      }
    }
  }

 private:
  // Whether dimension i and the next one are one in every array; they are then made one.
  bool merge(int i) {
    for (int s = 0; s < sets_; ++s)
      if (stride_[s][i] != stride_[s][i + 1] * size_[i + 1]) return false;
    size_[i] *= size_[i + 1];
    for (int s = 0; s < sets_; ++s) stride_[s][i] = stride_[s][i + 1];
    return true;
  }

  int rank_ = 0, sets_ = 0;
  int64_t count_ = 1;
  int64_t size_[kMaxRank] = {};
  int64_t stride_[kMaxSets][kMaxRank] = {};
};

}  // namespace tandem::detail
