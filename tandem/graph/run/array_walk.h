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

}  // namespace tandem
