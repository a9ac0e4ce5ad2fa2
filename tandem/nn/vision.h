// SPDX-License-Identifier: Apache-2.0
// Image layers without parameters: resizing, pixel and channel shuffles, patches as columns. Each
// calls the function of the same name.
#pragma once

#include <optional>
#include <string>

#include "tandem/nn/module.h"
#include "tandem/nn/one_size.h"
#include "tandem/ops/vision/scale_factor.h"

namespace tandem::nn {

struct UpsampleOptions {
  IntList size = {};  ///< spatial size of the result, or
  ScaleFactor scale_factor = {};
  std::string mode = "nearest";  ///< see interpolate
  std::optional<bool> align_corners = {};
  bool recompute_scale_factor = false;
};
/// x [n, c, ...] resized by interpolate.
class TD_API Upsample : public Module {
 public:
  explicit Upsample(UpsampleOptions options);
  Tensor forward(Tensor x);
  UpsampleOptions options;
};
struct Upsampling2dOptions {
  IntList size = {};
  ScaleFactor scale_factor = {};
};
/// x [n, c, h, w] resized with the nearest elements.
class TD_API UpsamplingNearest2d : public Module {
 public:
  explicit UpsamplingNearest2d(Upsampling2dOptions options);
  Tensor forward(Tensor x);
  Upsampling2dOptions options;
};
/// x [n, c, h, w] resized bilinearly with aligned corners (align_corners).
class TD_API UpsamplingBilinear2d : public Module {
 public:
  explicit UpsamplingBilinear2d(Upsampling2dOptions options);
  Tensor forward(Tensor x);
  Upsampling2dOptions options;
};

/// [*, c*r*r, h, w] -> [*, c, h*r, w*r].
class TD_API PixelShuffle : public Module {
 public:
  explicit PixelShuffle(int64_t upscale_factor);
  Tensor forward(Tensor x);
  int64_t upscale_factor;
};
/// [*, c, h*r, w*r] -> [*, c*r*r, h, w].
class TD_API PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(int64_t downscale_factor);
  Tensor forward(Tensor x);
  int64_t downscale_factor;
};
/// Channels of x [n, c, ...] interleaved across the groups.
class TD_API ChannelShuffle : public Module {
 public:
  explicit ChannelShuffle(int64_t groups);
  Tensor forward(Tensor x);
  int64_t groups;
};

struct FoldOptions {
  IntList dilation = {1}, padding = {0}, stride = {1};
};
/// Patches of x [n, c, h, w] as columns [n, c * window, positions].
class TD_API Unfold : public Module {
 public:
  explicit Unfold(IntList kernel_size, FoldOptions options = {});
  TD_LIST_OF_ONE(Unfold, FoldOptions);
  Tensor forward(Tensor x);
  IntList kernel_size;
  FoldOptions options;
};
/// Columns [n, c * window, positions] summed into images [n, c, *output_size].
class TD_API Fold : public Module {
 public:
  Fold(IntList output_size, IntList kernel_size, FoldOptions options = {});
  Tensor forward(Tensor x);
  IntList output_size, kernel_size;
  FoldOptions options;
};

}  // namespace tandem::nn
