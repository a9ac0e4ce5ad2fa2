// SPDX-License-Identifier: Apache-2.0
// Vector loops over the channels of one pixel, for pooling of channels-last arrays of f32, bf16 and
// f16. One text (pool_loops.inc) is compiled per instruction set; all give the same bits.
#pragma once

#include <cstdint>

#include "tandem/base/half.h"

namespace tandem::detail {

/// Elements of x that a window covers, channel 0, in row-major order: their offsets from the
/// sample's first element, and their row-major index in the plane.
struct WindowTaps {
  const int64_t* offset;
  const int32_t* position;
  int64_t count;
};
template <class T>
struct PoolLoops {
  /// y[i] = largest (or the last NaN) of x[offset[k] + i] over the taps k of a window, at[i] =
  /// position[k] of the first such tap (unless null).
  void (*max_window)(T* y, int32_t* at, const T* x, const WindowTaps& taps, int64_t n);
  void (*add)(float* sum, const T* x, int64_t n);                  ///< sum[i] += x[i]
  void (*scale)(T* y, const float* sum, float f, int64_t n);       ///< y[i] = sum[i] / f
  void (*add_scaled)(float* sum, const T* x, float f, int64_t n);  ///< sum[i] += x[i] / f
  /// sum[i] += g[i] where at[i] == position; returns the number of matches.
  int64_t (*add_where)(float* sum, const T* g, const int32_t* at, int32_t position, int64_t n);
  /// y[offset[k] + i] = at[i] == position[k] ? g[i] : 0 for all taps; returns the match count.
  int64_t (*put_window)(T* y, const T* g, const int32_t* at, const WindowTaps& taps, int64_t n);
};
struct PoolTables {
  PoolLoops<float> f32;
  PoolLoops<BFloat16> bf16;
  PoolLoops<Half> f16;
};
extern const PoolTables kPoolBase, kPoolAvx2, kPoolAvx512;

}  // namespace tandem::detail
