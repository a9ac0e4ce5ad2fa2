// SPDX-License-Identifier: Apache-2.0
// Vector loops over the channels of one pixel, for pooling of channels-last arrays of f32,
// bf16 and f16. One text (pool_loops.inc) is compiled per instruction set; all give the same bits.
#pragma once

#include <cstdint>

#include "tandem/base/half.h"

namespace tandem::detail {

template <class T>
struct PoolLoops {
  /// Where x[i] wins over best[i] (larger, or the first NaN): best[i] = x[i], at[i] = position.
  void (*max_step)(T* best, int32_t* at, const T* x, int32_t position, int64_t n);
  void (*max)(T* best, const T* x, int64_t n);                     ///< the same without positions
  void (*add)(float* sum, const T* x, int64_t n);                  ///< sum[i] += x[i]
  void (*scale)(T* y, const float* sum, float f, int64_t n);       ///< y[i] = sum[i] / f
  void (*add_scaled)(float* sum, const T* x, float f, int64_t n);  ///< sum[i] += x[i] / f
  /// sum[i] += g[i] where at[i] == position; returns how many that are.
  int64_t (*add_where)(float* sum, const T* g, const int32_t* at, int32_t position, int64_t n);
  /// y[i] = at[i] == position ? g[i] : 0; returns how many that are.
  int64_t (*put_where)(T* y, const T* g, const int32_t* at, int32_t position, int64_t n);
};
struct PoolTables {
  PoolLoops<float> f32;
  PoolLoops<BFloat16> bf16;
  PoolLoops<Half> f16;
};
extern const PoolTables kPoolBase, kPoolAvx2, kPoolAvx512;

}  // namespace tandem::detail
