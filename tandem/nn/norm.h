// SPDX-License-Identifier: Apache-2.0
// Normalisation and dropout layers.
#pragma once

#include <functional>

#include "tandem/nn/module.h"
#include "tandem/nn/one_size.h"
#include "tandem/ops/nn/norm.h"

namespace tandem::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< none: cumulative average
  bool affine = true;
  bool track_running_stats = true;
  DType dtype = DType::f32;
};

namespace detail {
/// Normalises per channel over all other dimensions. Parameters weight, bias [c]; buffers
/// running_mean, running_var [c], num_batches_tracked. Training uses the batch's statistics and
/// updates the running ones; eval uses the running ones.
class TD_API BatchNorm : public Module {
 public:
  Param weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  int64_t num_features;
  BatchNormOptions options;

  /// Where a batch is spread over processes: the sum over them, with a derivative. In training the
  /// statistics are then those of all of them, which may have unequal parts. Empty: of this one.
  void set_sum_over_ranks(std::function<Tensor(const Tensor&)> sum);

 protected:
  BatchNorm(Dim num_features, const BatchNormOptions& options);
  Tensor run(Tensor x, int min_rank, int max_rank);

 private:
  /// A compiled program depends on it.
  struct Spread : RefCounted {
    bool on = false;
    std::function<Tensor(const Tensor&)> sum;
  };
  bool spread() const;
  BatchNormStats stats_over_ranks(const Tensor& x, const Tensor& w, const Tensor& b,
                                  Tensor& unbiased) const;
  void track(const Tensor& mean, const Tensor& unbiased_var);
  Ref<Spread> spread_ = make_ref<Spread>();
};
/// `m` as a batch norm; nullptr if it is not one.
TD_API BatchNorm* as_batch_norm(Module& m);
}  // namespace detail

/// x [n, c] or [n, c, l].
class TD_API BatchNorm1d : public detail::BatchNorm {
 public:
  explicit BatchNorm1d(Dim num_features, BatchNormOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, c, h, w].
class TD_API BatchNorm2d : public detail::BatchNorm {
 public:
  explicit BatchNorm2d(Dim num_features, BatchNormOptions options = {});
  Tensor forward(Tensor x);
};

/// x [n, c, d, h, w].
class TD_API BatchNorm3d : public detail::BatchNorm {
 public:
  explicit BatchNorm3d(Dim num_features, BatchNormOptions options = {});
  Tensor forward(Tensor x);
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  DType dtype = DType::f32;
};
/// Normalises over the last dimensions, normalized_shape; weight and bias have that shape.
class TD_API LayerNorm : public Module {
 public:
  explicit LayerNorm(IntList normalized_shape, LayerNormOptions options = {});
  TD_LIST_OF_ONE(LayerNorm, LayerNormOptions);
  Tensor forward(Tensor x);
  Param weight, bias;
  IntList normalized_shape;
  LayerNormOptions options;
};

/// In training zeroes elements with probability p and scales the rest by 1 / (1 - p).
class TD_API Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(Tensor x);
  double p;
};

}  // namespace tandem::nn
