// SPDX-License-Identifier: Apache-2.0
// Functions of torch.nn.functional that are composed of several rows: bags of embeddings, a linear
// layer with its loss, convolution over [time, batch, channels], upsampling's older names, patches.
#pragma once

#include <optional>
#include <string>

#include "tandem/ops/conv/fold.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/view/view.h"
#include "tandem/ops/vision/resample.h"

namespace tandem {

/// Options of embedding_bag. PyTorch's max_norm, scale_grad_by_freq and sparse are not there.
struct EmbeddingBagArguments {
  Tensor offsets = {};               ///< [bags], where each bag begins in an input of one dimension
  std::string_view mode = "mean";    ///< or "sum", "max"
  Tensor per_sample_weights = {};    ///< in the input's shape, for mode "sum"
  bool include_last_offset = false;  ///< offsets end with the number of inputs
  std::optional<int64_t> padding_idx = {};  ///< a row that does not count; -1 is the last
};
/// Sums, means or maxima of rows of weight [n, d] per bag: input integers [bags, length], or [n]
/// with offsets. An empty bag gives zeros. Throws Shape, Value.
TD_API Tensor embedding_bag(Tensor input, const Tensor& weight,
                            EmbeddingBagArguments arguments = {},
                            SourceLocation loc = SourceLocation::here());

/// Options of linear_cross_entropy.
struct LinearCrossEntropyArguments {
  Tensor linear_bias = {};  ///< [c, ...d]
  Tensor weight = {};       ///< [c], factor of each class
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
/// cross_entropy of the logits x [in] or [n, in] times linear_weight [c, ...d, in]^T: logits [n, c,
/// ...d], target as there. Throws Shape.
TD_API Tensor linear_cross_entropy(const Tensor& x, const Tensor& linear_weight,
                                   const Tensor& target, LinearCrossEntropyArguments arguments = {},
                                   SourceLocation loc = SourceLocation::here());

/// Convolution of x [t, n, c] with w [k, c, out] and bias [out], `pad` zeros at both ends: [t + 2
/// pad - k + 1, n, out].
TD_API Tensor conv_tbc(const Tensor& x, const Tensor& w, const Tensor& bias, int64_t pad = 0,
                       SourceLocation loc = SourceLocation::here());

/// interpolate under its older names; with the nearest elements, or bilinear (trilinear) with
/// aligned corners.
TD_API Tensor upsample(Tensor x, const InterpolateOptions& options,
                       SourceLocation loc = SourceLocation::here());
TD_API Tensor upsample_nearest(Tensor x, IntList size, ScaleFactor scale_factor = {},
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor upsample_bilinear(Tensor x, IntList size, ScaleFactor scale_factor = {},
                                SourceLocation loc = SourceLocation::here());

/// im2col under torch.nn.functional's name; `unfold(x, dim, size, step)` is the tensor's method.
TD_API Tensor unfold(Tensor x, IntList kernel_size, IntList dilation = {1}, IntList padding = {0},
                     IntList stride = {1}, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
