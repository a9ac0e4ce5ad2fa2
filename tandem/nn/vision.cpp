// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/vision.h"

#include "tandem/ops/conv/fold.h"
#include "tandem/ops/view/view.h"
#include "tandem/ops/vision/resample.h"

namespace tandem::nn {

Upsample::Upsample(UpsampleOptions o) : options(std::move(o)) { this->register_members(this, ""); }
Tensor Upsample::forward(Tensor x) {
  return interpolate(std::move(x), {.size = options.size,
                                    .scale_factor = options.scale_factor,
                                    .mode = options.mode,
                                    .align_corners = options.align_corners,
                                    .recompute_scale_factor = options.recompute_scale_factor});
}

UpsamplingNearest2d::UpsamplingNearest2d(Upsampling2dOptions o) : options(o) {
  this->register_members(this, "");
}
Tensor UpsamplingNearest2d::forward(Tensor x) {
  TD_CHECK(x.dim() == 4, Shape, "UpsamplingNearest2d expects 4 dimensions, x is {}",
           x.shape().to_string());
  return interpolate(std::move(x), {.size = options.size, .scale_factor = options.scale_factor});
}

UpsamplingBilinear2d::UpsamplingBilinear2d(Upsampling2dOptions o) : options(o) {
  this->register_members(this, "");
}
Tensor UpsamplingBilinear2d::forward(Tensor x) {
  return interpolate(std::move(x), {.size = options.size,
                                    .scale_factor = options.scale_factor,
                                    .mode = "bilinear",
                                    .align_corners = true});
}

PixelShuffle::PixelShuffle(int64_t r) : upscale_factor(r) { this->register_members(this, ""); }
Tensor PixelShuffle::forward(Tensor x) { return pixel_shuffle(std::move(x), upscale_factor); }

PixelUnshuffle::PixelUnshuffle(int64_t r) : downscale_factor(r) {
  this->register_members(this, "");
}
Tensor PixelUnshuffle::forward(Tensor x) { return pixel_unshuffle(std::move(x), downscale_factor); }

ChannelShuffle::ChannelShuffle(int64_t groups) : groups(groups) {
  this->register_members(this, "");
}
Tensor ChannelShuffle::forward(Tensor x) { return channel_shuffle(std::move(x), groups); }

Unfold::Unfold(IntList kernel, FoldOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor Unfold::forward(Tensor x) {
  return im2col(std::move(x), kernel_size, options.dilation, options.padding, options.stride);
}

Fold::Fold(IntList size, IntList kernel, FoldOptions o)
    : output_size(size), kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor Fold::forward(Tensor x) {
  return col2im(std::move(x), output_size, kernel_size, options.dilation, options.padding,
                options.stride);
}

}  // namespace tandem::nn
