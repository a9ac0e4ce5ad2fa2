// SPDX-License-Identifier: Apache-2.0
// Vector loops over the channels of channels-last arrays: depthwise and Winograd convolutions, and
// the epilogues applied to sums before they are stored. Uses fused multiply-adds. One text
// (channel_loops.inc) is compiled per instruction set.
#pragma once

#include <cstdint>

#include "tandem/ops/matmul/packed.h"

namespace tandem::detail {

struct DepthwiseRow {
  const float* const* rows;  ///< kernel_h rows of x; rows outside the image are a row of zeros
  const float* weight;       ///< [kernel_h * kernel_w, c]
  const float* bias;         ///< [c], or nullptr
  float* y;
  int64_t c, in_w, w, left;  ///< channels, columns of x and y, padding
  int kernel_h, kernel_w, stride;
};

/// A row of gy [w, c] and, of one row of taps, the weight [kernel_w, c] and the row of x [in_w, c]
/// that they read: output o reads column o * stride + b * dilation - left by tap b.
struct DepthwiseGradRow {
  float* to;               ///< added to: the weight's derivative, or x's
  const float *gy, *from;  ///< from: x, or the weight
  int64_t c, in_w, w, left, stride, dilation;
  int kernel_w;
};

/// v * scale + shift, rounded twice. The shift that changes no bit is a negative zero.
struct ScaleShift {
  float scale = 1, shift = -0.0f;
  bool any() const { return scale != 1 || shift != 0; }
};

/// The epilogue that packed kernels apply to sums.
struct FusedEpilogue {
  PackedEpilogue kind = PackedEpilogue::none;
  float low = 0, high = 0;
  ScaleShift before, after;         ///< before the residual, after the function
  const float* residual = nullptr;  ///< for the whole result, or nullptr
  bool scaled() const { return before.any() || after.any(); }
  bool any() const { return kind != PackedEpilogue::none || residual || scaled(); }
};

/// y[i * y_step] = bias + sum over segments s and k < depth of x[i * x_step + s * x_segment + k] *
/// w[s * depth + k], for i < n.
struct DotRow {
  const float *x, *w;
  float* y;
  float bias;
  int64_t n, x_step, x_segment, y_step, depth;
  int64_t segments;
};

struct ChannelLoops {
  /// y[r, j] = after(function(before(y[r, j]) + residual[r, j])) for r < rows, j < columns; rows of
  /// both are y_row apart, residual may be nullptr.
  void (*finish)(const FusedEpilogue& t, float* y, const float* residual, int64_t y_row,
                 int64_t rows, int64_t columns);
  /// One row of outputs of a depthwise convolution.
  void (*depthwise)(const DepthwiseRow& r);
  /// Derivatives of such a row with respect to the weight and to the input.
  void (*depthwise_weight)(const DepthwiseGradRow& r);
  void (*depthwise_input)(const DepthwiseGradRow& r);
  /// v[e * v_step + i] = (B^T d B)[e] for i < c, where d[a, b] = x[a * x_row + b * x_column + i]
  /// inside rows [r0, r1) and columns [c0, c1), else 0.
  void (*winograd_in)(const float* x, int64_t x_row, int64_t x_column, int r0, int r1, int c0,
                      int c1, int64_t c, float* v, int64_t v_step);
  /// y[a * y_row + b * y_column + i] = (A^T m A)[a, b] + bias[i] for a < rows, b < columns, i < c.
  void (*winograd_out)(const float* m, int64_t m_step, const float* bias, int64_t c, int rows,
                       int columns, float* y, int64_t y_row, int64_t y_column);
  void (*dots)(const DotRow& r);
};
extern const ChannelLoops kChannelBase, kChannelAvx2, kChannelAvx512;
/// The best loops for this processor.
const ChannelLoops& channel_loops();

}  // namespace tandem::detail
