// SPDX-License-Identifier: Apache-2.0
// Losses with the weights of the last layer in them, for many classes.
#pragma once

#include <vector>

#include "tandem/nn/container.h"
#include "tandem/nn/linear.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::nn {

struct AdaptiveLogSoftmaxOptions {
  double div_value = 4;  ///< how much smaller each cluster's projection is than the one before
  bool head_bias = false;
  DType dtype = DType::f32;
};
/// The log-probability of each target, and minus their mean.
struct AdaptiveLogSoftmaxResult {
  Tensor output, loss;
};
/// Adaptive softmax (Grave et al. 2017): classes sorted by falling frequency. The head decides
/// between the first cutoffs[0] classes and one entry per cluster; cluster i holds the classes from
/// cutoffs[i] to the next cutoff (the last one to n_classes). Parameters head.weight [cutoffs[0] +
/// clusters, in] and head.bias, tail.i.0.weight [in / div_value^(i + 1), in], tail.i.1.weight
/// [classes of the cluster, ...].
class TD_API AdaptiveLogSoftmaxWithLoss : public Module {
 public:
  AdaptiveLogSoftmaxWithLoss(Dim in_features, int64_t n_classes, std::vector<int64_t> cutoffs,
                             AdaptiveLogSoftmaxOptions options = {});
  /// x [n, in] and target [n], or x [in] and a 0-d target. In eager code only the clusters and rows
  /// that the targets need are computed. Throws Value for a target outside 0 .. n_classes - 1.
  AdaptiveLogSoftmaxResult forward(Tensor x, Tensor target);
  AdaptiveLogSoftmaxResult operator()(Tensor x, Tensor target,
                                      SourceLocation loc = SourceLocation::here());
  /// All log-probabilities [n, n_classes] of x [n, in], and the most likely class [n].
  Tensor log_prob(const Tensor& x, SourceLocation loc = SourceLocation::here());
  Tensor predict(const Tensor& x, SourceLocation loc = SourceLocation::here());
  Linear head;
  std::vector<Sequential> tail;
  int64_t in_features, n_classes;
  std::vector<int64_t> cutoffs;  ///< ends with n_classes
  AdaptiveLogSoftmaxOptions options;

 private:
  Tensor full_log_prob(const Tensor& x);
  Tensor target_log_prob(const Tensor& x, const Tensor& target);
};

struct LinearCrossEntropyOptions {
  IntList out_features = {};  ///< further dimensions of the logits, after the classes
  bool bias = false;
  Reduction reduction = Reduction::mean;
  Tensor weight = {};  ///< [num_classes], factor of each class
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  DType dtype = DType::f32;
};
/// Linear layer and cross-entropy in one: x [n, in], target [n, ...out_features]. Parameters
/// linear.weight [num_classes * out_features, in], linear.bias.
class TD_API LinearCrossEntropyLoss : public Module {
 public:
  LinearCrossEntropyLoss(Dim in_features, Dim num_classes, LinearCrossEntropyOptions options = {});
  Tensor forward(Tensor x, Tensor target);
  Tensor operator()(Tensor x, Tensor target, SourceLocation loc = SourceLocation::here());
  Linear linear;
  int64_t num_classes;
  LinearCrossEntropyOptions options;
};

}  // namespace tandem::nn
