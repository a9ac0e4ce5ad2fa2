// SPDX-License-Identifier: Apache-2.0
// Normalisation per sample: GroupNorm, InstanceNorm1d to 3d, LocalResponseNorm.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  DType dtype = DType::f32;
};
/// x [n, c, ...] normalised over each of num_groups groups of channels; weight and bias [c].
class TD_API GroupNorm : public Module {
 public:
  GroupNorm(int64_t num_groups, Dim num_channels, GroupNormOptions options = {});
  Tensor forward(Tensor x);
  Param weight, bias;
  int64_t num_groups, num_channels;
  GroupNormOptions options;
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
  DType dtype = DType::f32;
};

namespace detail {
/// Normalises each channel of each sample over its spatial dimensions. With affine: weight, bias
/// [c]; with track_running_stats: running_mean, running_var [c], used in eval mode, and
/// num_batches_tracked, which stays 0 as in PyTorch.
class TD_API InstanceNorm : public Module {
 public:
  Param weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  int64_t num_features;
  InstanceNormOptions options;

 protected:
  InstanceNorm(Dim num_features, const InstanceNormOptions& options);
  Tensor run(Tensor x, int spatial);
};
}  // namespace detail

/// x [n, c, l] or [c, l].
class TD_API InstanceNorm1d : public detail::InstanceNorm {
 public:
  explicit InstanceNorm1d(Dim num_features, InstanceNormOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, c, h, w] or [c, h, w].
class TD_API InstanceNorm2d : public detail::InstanceNorm {
 public:
  explicit InstanceNorm2d(Dim num_features, InstanceNormOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, c, d, h, w] or [c, d, h, w].
class TD_API InstanceNorm3d : public detail::InstanceNorm {
 public:
  explicit InstanceNorm3d(Dim num_features, InstanceNormOptions options = {});
  Tensor forward(Tensor x);
};

/// x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta.
class TD_API LocalResponseNorm : public Module {
 public:
  explicit LocalResponseNorm(int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1.0);
  Tensor forward(Tensor x);
  int64_t size;
  double alpha, beta, k;
};

}  // namespace tandem::nn
