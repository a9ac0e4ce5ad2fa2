// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling layers. Sizes take a number (all dimensions) or a list.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct ConvOptions {
  IntList stride = {1}, padding = {0}, dilation = {1};
  int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::f32;
};

namespace detail {
/// Common part of Conv1d, Conv2d, Conv3d: weight [out, in/groups, ...kernel], bias [out], both
/// uniform in +-1/sqrt(in/groups * window).
class TD_API ConvNd : public Module {
 public:
  Param weight, bias;
  int64_t in_channels, out_channels;
  IntList kernel_size;
  ConvOptions options;

 protected:
  ConvNd(int rank, Dim in, Dim out, const IntList& kernel, const ConvOptions& options);
  Tensor run(Tensor x, int rank);
};
}  // namespace detail

/// x [n, in, l] -> [n, out, l'].
class TD_API Conv1d : public detail::ConvNd {
 public:
  Conv1d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, in, h, w] -> [n, out, h', w'].
class TD_API Conv2d : public detail::ConvNd {
 public:
  Conv2d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, in, d, h, w] -> [n, out, d', h', w'].
class TD_API Conv3d : public detail::ConvNd {
 public:
  Conv3d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};

struct PoolOptions {
  IntList stride = {};  ///< empty: the kernel size
  IntList padding = {0};
  IntList dilation = {1};
  bool ceil_mode = false;
  bool count_include_pad = true;
};

/// Largest element of each window of x [n, c, h, w].
class TD_API MaxPool2d : public Module {
 public:
  explicit MaxPool2d(IntList kernel_size, PoolOptions options = {});
  Tensor forward(Tensor x);
  IntList kernel_size;
  PoolOptions options;
};
/// Mean of each window of x [n, c, h, w].
class TD_API AvgPool2d : public Module {
 public:
  explicit AvgPool2d(IntList kernel_size, PoolOptions options = {});
  Tensor forward(Tensor x);
  IntList kernel_size;
  PoolOptions options;
};
/// Mean over windows so that the result is [n, c, *output_size].
class TD_API AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(IntList output_size);
  Tensor forward(Tensor x);
  IntList output_size;
};

}  // namespace tandem::nn
