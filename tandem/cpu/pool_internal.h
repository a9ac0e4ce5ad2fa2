// SPDX-License-Identifier: Apache-2.0
// Vector loops over the channels of one pixel, for pooling of channels-last f32 arrays. One text
// (pool_loops.inc) is compiled per instruction set; all give the same bits.
#pragma once

#include <cstdint>

namespace tandem::detail {

struct PoolLoops {
  /// Where x[i] wins over best[i] (larger, or the first NaN): best[i] = x[i], at[i] = position.
  void (*max_step)(float* best, int32_t* at, const float* x, int32_t position, int64_t n);
  void (*add)(float* sum, const float* x, int64_t n);                  ///< sum[i] += x[i]
  void (*scale)(float* y, const float* sum, float f, int64_t n);       ///< y[i] = sum[i] / f
  void (*add_scaled)(float* sum, const float* x, float f, int64_t n);  ///< sum[i] += x[i] / f
  /// sum[i] += g[i] where at[i] == position; returns how many that are.
  int64_t (*add_where)(float* sum, const float* g, const int32_t* at, int32_t position, int64_t n);
};
extern const PoolLoops kPoolBase, kPoolAvx2, kPoolAvx512;

}  // namespace tandem::detail
