// SPDX-License-Identifier: Apache-2.0
// The elements of an array in row-major order, for loops that are simple rather than fast.
#pragma once

#include <algorithm>

#include "tandem/graph/kernel.h"

namespace tandem {

/// Calls f(offset), counted in elements, for every element in row-major order.
template <class F>
void for_each_offset(const Array& a, F&& f) {
  if (a.numel == 0) return;
  int rank = a.rank;
  int64_t at[kMaxRank] = {};
  int64_t offset = 0;
  if (rank == 0) return f(0);
  int64_t inner = a.shape[rank - 1], step = a.strides[rank - 1];
  for (;;) {
    for (int64_t i = 0; i < inner; ++i) f(offset + i * step);
    int d = rank - 2;
    for (; d >= 0; --d) {
      offset += a.strides[d];
      if (++at[d] < a.shape[d]) break;
      offset -= a.strides[d] * a.shape[d];
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

/// The strides of an array of this shape whose elements lie in row-major order.
inline Strides row_major_strides(const Array& a) {
  Strides s;
  int64_t step = 1;
  for (int d = a.rank - 1; d >= 0; --d) {
    s[d] = step;
    step *= std::max<int64_t>(a.shape[d], 1);
  }
  return s;
}

namespace detail {

/// Whether the strides are those of a dense array whose channels (dimension 1) are innermost.
/// Dimensions of size 1 are ignored.
inline bool is_channels_last(const Array& a) {
  if (a.rank < 3) return false;
  int64_t expect = 1;
  auto fits = [&](int d) {
    if (a.shape[d] != 1 && a.strides[d] != expect) return false;
    expect *= a.shape[d];
    return true;
  };
  if (!fits(1)) return false;
  for (int d = a.rank - 1; d >= 2; --d)
    if (!fits(d)) return false;
  return fits(0);
}

/// Channels-last strides of a shape [n, c, ...].
inline Strides channels_last_strides(const int64_t* shape, int rank) {
  Strides s;
  int64_t step = shape[1];
  s[1] = 1;
  for (int d = rank - 1; d >= 2; --d) {
    s[d] = step;
    step *= shape[d];
  }
  s[0] = step;
  return s;
}

}  // namespace detail
}  // namespace tandem
