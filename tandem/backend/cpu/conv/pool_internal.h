// SPDX-License-Identifier: Apache-2.0
// Vector loops of pooling of f32, bf16 and f16: over the channels of one pixel of channels-last
// arrays, and over a row of a plane of others. One text (pool_loops.inc) is compiled per
// instruction set; all give the same bits.
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
/// Sums that PoolLoops::add_chains does at a time: each is a chain of additions.
inline constexpr int64_t kPoolChains = 8;
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

  // ---- rows of planes
  /// phases[p * length + i] = x[(p + i * stride) * x_stride] for all n elements of x.
  void (*split)(float* phases, const T* x, int64_t x_stride, int64_t n, int64_t stride,
                int64_t length);
  /// The inverse of split.
  void (*join)(T* x, const float* phases, int64_t x_stride, int64_t n, int64_t stride,
               int64_t length);
  /// Where x[i] is larger or a NaN, or at[i] < 0: best[i] = x[i], at[i] = position + i * step.
  void (*max_tap)(float* best, int32_t* at, const float* x, int32_t position, int32_t step,
                  int64_t n);
  /// sum[g] += rows[g][i * step] for i < n in this order, for the g < kPoolChains.
  void (*add_chains)(float* sum, const T* const* rows, int64_t step, int64_t n);
  void (*divide)(float* x, const float* by, int64_t n);  ///< x[i] /= by[i]
};
struct PoolTables {
  PoolLoops<float> f32;
  PoolLoops<BFloat16> bf16;
  PoolLoops<Half> f16;
};
extern const PoolTables kPoolBase, kPoolAvx2, kPoolAvx512;

}  // namespace tandem::detail
