// SPDX-License-Identifier: Apache-2.0
// Rows of few elements are transposed and computed as columns: alone their exponentials would not
// fill vectors.
#pragma once

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"

namespace tandem::detail {

/// Rows of fewer elements are short.
inline constexpr int64_t kShortRow = 64;
/// Floats of kMostColumns transposed ones: room for whole vectors (MicroTable::transpose), and
/// blocks are no multiple of pages apart.
inline constexpr int64_t kShortRows = kMostColumns * kShortRow + 512;

/// `count` short rows of n elements as columns in x.
inline Columns turn_rows(float* x, const float* rows, int64_t n, int64_t count) {
  micro_table<float>().transpose(x, count, rows, n, count, n);
  return {n, count, count};
}
/// Columns in y as rows.
inline void turn_columns(float* rows, const float* y, const Columns& c) {
  const MicroTable<float>& table = micro_table<float>();
  if (c.n >= table.width) return table.transpose(rows, c.n, y, c.step, c.n, c.count);
  for (int64_t r = 0; r < c.count; ++r)
    for (int64_t k = 0; k < c.n; ++k) *rows++ = y[k * c.step + r];
}

}  // namespace tandem::detail
