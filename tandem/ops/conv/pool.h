// SPDX-License-Identifier: Apache-2.0
// Max and average pooling over one to three dimensions, with fixed or adaptive windows, and the
// rows of their derivatives. x is [n, c, ...] for the rows; the functions also take [c, ...].
#pragma once

#include "tandem/graph/op_def.h"
#include "tandem/ops/vision/scale_factor.h"

namespace tandem {

/// Attributes of all rows here. Lists have one entry per spatial dimension. If `output` is not
/// empty, the windows are adaptive: window i covers floor(i * in / out) up to ceil((i + 1) * in /
/// out), and kernel, stride, padding, dilation are empty.
struct PoolAttrs {
  IntList kernel, stride, padding, dilation;
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< average: include padding in the divisor
  int64_t divisor_override = 0;   ///< average: the divisor, if not 0
  IntList output;
  /// Spatial size of x, for the *_backward rows.
  IntList size;
  template <class V>
  void fields(V& v) {
    v("kernel", kernel);
    v("stride", stride);
    v("padding", padding);
    v("dilation", dilation);
    v("ceil_mode", ceil_mode);
    v("count_include_pad", count_include_pad);
    v("divisor_override", divisor_override);
    v("output", output);
    v("size", size);
  }
};

namespace op {
/// max_pool: x -> y, "idx!" i32: row-major position in x's spatial plane of the chosen element (the
/// first of equal ones; a NaN wins, the last if there are several). max_pool_with_indices exposes
/// idx. max_pool_backward: gy, idx -> gx. avg_pool: x -> y. avg_pool_backward: gy -> gx.
extern TD_API const OpDef max_pool, max_pool_with_indices, max_pool_backward, avg_pool,
    avg_pool_backward;
}  // namespace op
TD_API std::span<const OpDef* const> pool_rows();

/// Largest element of each window. `stride` defaults to the kernel size; a list with one entry
/// applies to all dimensions. Padding (at most half the kernel) never wins. Throws Shape, Value.
TD_API Tensor max_pool1d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         IntList dilation = {1}, bool ceil_mode = false,
                         SourceLocation loc = SourceLocation::here());
TD_API Tensor max_pool2d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         IntList dilation = {1}, bool ceil_mode = false,
                         SourceLocation loc = SourceLocation::here());
TD_API Tensor max_pool3d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         IntList dilation = {1}, bool ceil_mode = false,
                         SourceLocation loc = SourceLocation::here());
/// The same, and the i64 positions in the spatial plane of x.
TD_API OutputAndIndices max_pool1d_with_indices(Tensor x, IntList kernel_size, IntList stride = {},
                                                IntList padding = {0}, IntList dilation = {1},
                                                bool ceil_mode = false,
                                                SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices max_pool2d_with_indices(Tensor x, IntList kernel_size, IntList stride = {},
                                                IntList padding = {0}, IntList dilation = {1},
                                                bool ceil_mode = false,
                                                SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices max_pool3d_with_indices(Tensor x, IntList kernel_size, IntList stride = {},
                                                IntList padding = {0}, IntList dilation = {1},
                                                bool ceil_mode = false,
                                                SourceLocation loc = SourceLocation::here());
/// Mean of each window.
TD_API Tensor avg_pool1d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         bool ceil_mode = false, bool count_include_pad = true,
                         SourceLocation loc = SourceLocation::here());
TD_API Tensor avg_pool2d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         bool ceil_mode = false, bool count_include_pad = true,
                         int64_t divisor_override = 0, SourceLocation loc = SourceLocation::here());
TD_API Tensor avg_pool3d(Tensor x, IntList kernel_size, IntList stride = {}, IntList padding = {0},
                         bool ceil_mode = false, bool count_include_pad = true,
                         int64_t divisor_override = 0, SourceLocation loc = SourceLocation::here());
/// Pooling to a given output size; -1 keeps that dimension's size.
TD_API Tensor adaptive_avg_pool1d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor adaptive_avg_pool2d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor adaptive_avg_pool3d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor adaptive_max_pool1d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor adaptive_max_pool2d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
TD_API Tensor adaptive_max_pool3d(Tensor x, IntList output_size,
                                  SourceLocation loc = SourceLocation::here());
/// The same, and the i64 positions in the spatial plane of x.
TD_API OutputAndIndices adaptive_max_pool1d_with_indices(
    Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices adaptive_max_pool2d_with_indices(
    Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices adaptive_max_pool3d_with_indices(
    Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());

/// (sum of x^norm_type over each window)^(1 / norm_type).
TD_API Tensor lp_pool1d(Tensor x, double norm_type, IntList kernel_size, IntList stride = {},
                        bool ceil_mode = false, SourceLocation loc = SourceLocation::here());
TD_API Tensor lp_pool2d(Tensor x, double norm_type, IntList kernel_size, IntList stride = {},
                        bool ceil_mode = false, SourceLocation loc = SourceLocation::here());
TD_API Tensor lp_pool3d(Tensor x, double norm_type, IntList kernel_size, IntList stride = {},
                        bool ceil_mode = false, SourceLocation loc = SourceLocation::here());
/// Zeros with the elements of x at `indices` (from max_pool's windows, positions in a plane of the
/// result). output_size is the spatial size, with or without n and channels; empty: the smallest
/// size that pooling could have reduced to x's. Throws Shape, DType, Value.
TD_API Tensor max_unpool1d(Tensor x, const Tensor& indices, IntList kernel_size,
                           IntList stride = {}, IntList padding = {0}, IntList output_size = {},
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor max_unpool2d(Tensor x, const Tensor& indices, IntList kernel_size,
                           IntList stride = {}, IntList padding = {0}, IntList output_size = {},
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor max_unpool3d(Tensor x, const Tensor& indices, IntList kernel_size,
                           IntList stride = {}, IntList padding = {0}, IntList output_size = {},
                           SourceLocation loc = SourceLocation::here());

/// Options of fractional_max_pool2d and 3d: output_size, or output_ratio of the input's size;
/// random_samples [n, channels, 2 or 3] in 0..1, drawn if not set.
struct FractionalPoolOptions {
  IntList output_size = {};
  ScaleFactor output_ratio = {};
  Tensor random_samples = {};
};
/// Largest element of windows of x [n, c, h, w] that start at random steps (Graham, 2014).
TD_API Tensor fractional_max_pool2d(Tensor x, IntList kernel_size,
                                    const FractionalPoolOptions& options,
                                    SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices fractional_max_pool2d_with_indices(
    Tensor x, IntList kernel_size, const FractionalPoolOptions& options,
    SourceLocation loc = SourceLocation::here());
/// The same for x [n, c, d, h, w].
TD_API Tensor fractional_max_pool3d(Tensor x, IntList kernel_size,
                                    const FractionalPoolOptions& options,
                                    SourceLocation loc = SourceLocation::here());
TD_API OutputAndIndices fractional_max_pool3d_with_indices(
    Tensor x, IntList kernel_size, const FractionalPoolOptions& options,
    SourceLocation loc = SourceLocation::here());
/// The backward rows as functions.
TD_API Tensor max_pool_backward(Tensor gy, Tensor idx, const PoolAttrs& attrs,
                                SourceLocation loc = SourceLocation::here());
TD_API Tensor avg_pool_backward(Tensor gy, const PoolAttrs& attrs,
                                SourceLocation loc = SourceLocation::here());

}  // namespace tandem
