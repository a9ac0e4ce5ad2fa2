// SPDX-License-Identifier: Apache-2.0
// log(sum of exp(x)) of rows, for losses and logsumexp. Rows of few elements are transposed and
// computed as columns: alone their exponentials would not fill vectors.
#pragma once

#include <algorithm>
#include <cmath>

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

/// Computes top and sum with log(sum of exp(x)) = top + log(sum), as RowLoops::column_sum_exp does;
/// reads `x` three times from cache.
inline void sum_exp(const RowLoops& l, const float* x, int64_t n, float& top, double& sum) {
  constexpr int64_t kPiece = 1024;
  float e[kPiece];
  top = l.max(x, n);
  sum = std::isinf(top) ? 1 : 0;
  if (sum != 0) return;
  for (int64_t i = 0; i < n; i += kPiece) sum += l.exp(e, x + i, top, std::min(kPiece, n - i));
}

}  // namespace tandem::detail
