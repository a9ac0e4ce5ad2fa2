// SPDX-License-Identifier: Apache-2.0
// Resizing and sampling of images: interpolate, grid_sample, affine_grid, and the rows of their
// derivatives. x is [n, c, l], [n, c, h, w] or [n, c, d, h, w].
#pragma once

#include <optional>
#include <string>

#include "tandem/graph/op_def.h"
#include "tandem/ops/vision/scale_factor.h"

namespace tandem {

enum class ResampleMode : int64_t { nearest, nearest_exact, linear, cubic };

/// Attributes of interpolate and interpolate_backward. Lists have one entry per spatial dimension.
struct ResampleAttrs {
  int64_t mode = 0;  ///< a ResampleMode
  bool align_corners = false, antialias = false;
  IntList output;  ///< spatial size of interpolate's result
  IntList size;    ///< for interpolate_backward: spatial size of its result
  /// User-specified scale factors per spatial dimension; 0: output size / input size.
  double scale0 = 0, scale1 = 0, scale2 = 0;
  double scale(int i) const { return i == 0 ? scale0 : i == 1 ? scale1 : scale2; }
  template <class V>
  void fields(V& v) {
    v("mode", mode);
    v("align_corners", align_corners);
    v("antialias", antialias);
    v("output", output);
    v("size", size);
    v("scale0", scale0);
    v("scale1", scale1);
    v("scale2", scale2);
  }
};

enum class GridPadding : int64_t { zeros, border, reflection };

/// Attributes of the grid_sample rows.
struct GridSampleAttrs {
  int64_t mode = 2;     ///< a ResampleMode: nearest, linear or cubic (2d only)
  int64_t padding = 0;  ///< a GridPadding
  bool align_corners = false;
  IntList size;  ///< for grid_sample_backward_input: spatial size of its result
  template <class V>
  void fields(V& v) {
    v("mode", mode);
    v("padding", padding);
    v("align_corners", align_corners);
    v("size", size);
  }
};

namespace op {
/// interpolate: x [n, c, ...] -> y [n, c, ...output]. interpolate_backward: its transpose.
/// grid_sample: x [n, c, ...], grid [n, ...out, d] -> y [n, c, ...out].
/// grid_sample_backward_input: gy, grid -> gx [n, c, ...size].
/// grid_sample_backward_grid: gy, x, grid -> ggrid.
extern TD_API const OpDef interpolate, interpolate_backward, grid_sample,
    grid_sample_backward_input, grid_sample_backward_grid;
}  // namespace op
TD_API std::span<const OpDef* const> resample_rows();

/// Options of interpolate, in PyTorch's order.
struct InterpolateOptions {
  IntList size = {};  ///< spatial size of the result, or
  ScaleFactor scale_factor = {};
  /// nearest, nearest-exact, linear (3 dimensions), bilinear, bicubic (4), trilinear (5), area.
  std::string mode = "nearest";
  std::optional<bool> align_corners = {};  ///< of the linear modes and bicubic: centres of corners
                                           ///< on corners; default false
  bool recompute_scale_factor = false;     ///< use output size / input size, not scale_factor
  bool antialias = false;  ///< for bilinear and bicubic: widen the filter when shrinking
};

/// x [n, c, ...] resized to `size`, or by `scale_factor` to floor(size * factor). Formulas as in
/// PyTorch's interpolate (cubic: a = -0.75, with antialias -0.5). Throws Shape, DType, Value.
TD_API Tensor interpolate(Tensor x, const InterpolateOptions& options,
                          SourceLocation loc = SourceLocation::here());

/// x sampled at grid [n, ...out, d], whose last dimension holds positions (x, y) or (x, y, z) from
/// -1 to 1. mode: bilinear, nearest, bicubic (x of 4 dimensions). padding_mode, for positions
/// outside: zeros, border, reflection. Throws Shape, DType, Value.
TD_API Tensor grid_sample(Tensor x, Tensor grid, std::string_view mode = "bilinear",
                          std::string_view padding_mode = "zeros", bool align_corners = false,
                          SourceLocation loc = SourceLocation::here());
/// The grid [n, h, w, 2] (or [n, d, h, w, 3]) of affine maps theta [n, 2, 3] (or [n, 3, 4]) for
/// results of `size` [n, c, h, w] (or [n, c, d, h, w]).
TD_API Tensor affine_grid(Tensor theta, IntList size, bool align_corners = false,
                          SourceLocation loc = SourceLocation::here());

/// The rows as functions.
TD_API Tensor interpolate_backward(Tensor gy, const ResampleAttrs& attrs,
                                   SourceLocation loc = SourceLocation::here());
TD_API Tensor grid_sample_backward_input(Tensor gy, Tensor grid, const GridSampleAttrs& attrs,
                                         SourceLocation loc = SourceLocation::here());
TD_API Tensor grid_sample_backward_grid(Tensor gy, Tensor x, Tensor grid,
                                        const GridSampleAttrs& attrs,
                                        SourceLocation loc = SourceLocation::here());

}  // namespace tandem
