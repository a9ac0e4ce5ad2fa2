// SPDX-License-Identifier: Apache-2.0
// Normalisation: layer_norm, rms_norm and batch_norm as rows that keep their statistics for the
// derivative, their *_backward rows as composites, and the functions built on them. Statistics are
// f32 for 16-bit inputs, else of the input's dtype; weight and bias may be f32 with a 16-bit x.
#pragma once

#include <optional>

#include "tandem/graph/op_def.h"

namespace tandem {

/// Attributes of layer_norm, rms_norm and batch norms: statistics cover the last `dims` dimensions
/// (layer_norm, rms_norm) or all but dimension 1 (batch norms, dims = 0).
struct NormAttrs {
  int64_t dims = 0;
  double eps = 1e-5;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("eps", eps);
  }
};
/// Attributes of the *_backward rows: which gradients of weight and bias are requested; the others
/// have shape [0].
struct NormBackwardAttrs {
  int64_t dims = 0;
  bool weight = false, bias = false;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("weight", weight);
    v("bias", bias);
  }
};

namespace op {
/// layer_norm: x, w? , b? (shape of the last dims) -> y, mean!, rstd! ([..., 1, 1]).
/// layer_norm_backward: gy, x, mean, rstd, w? -> gx, gw, gb.
/// rms_norm: x, w? -> y, rstd!.  rms_norm_backward: gy, x, rstd, w? -> gx, gw (bias unused).
/// batch_norm_train: x [n, c, ...], w? [c], b? [c] -> y, mean [c], var [c] (biased), rstd! [c].
/// batch_norm_backward: gy, x, mean [c], rstd [c], w? -> gx, gw, gb.
/// batch_norm_infer: x, mean [c], var [c], w?, b? -> y.
extern TD_API const OpDef layer_norm, layer_norm_backward, rms_norm, rms_norm_backward,
    batch_norm_train, batch_norm_backward, batch_norm_infer;
}  // namespace op
TD_API std::span<const OpDef* const> norm_rows();

/// (x - mean) / sqrt(var + eps) * w + b over the last dimensions, given by normalized_shape (biased
/// variance). Throws Shape when x does not end with it.
TD_API Tensor layer_norm(Tensor x, IntList normalized_shape, Tensor w = {}, Tensor b = {},
                         double eps = 1e-5, SourceLocation loc = SourceLocation::here());
/// x / sqrt(mean(x^2) + eps) * w over the last dimensions; eps defaults to the dtype's epsilon.
TD_API Tensor rms_norm(Tensor x, IntList normalized_shape, Tensor w = {},
                       std::optional<double> eps = {}, SourceLocation loc = SourceLocation::here());

/// The result of batch_norm: running statistics are new values (undefined if none were passed);
/// nothing is changed in place.
/// Normalises x [n, c, ...] per channel: with the batch's statistics in training (or if no running
/// statistics are given), else with the running ones. New running statistics are (1 - momentum) *
/// old + momentum * batch (unbiased variance). Throws Value when training on one value per
/// channel.
TD_API BatchNormResult batch_norm(Tensor x, Tensor running_mean, Tensor running_var, Tensor w = {},
                                  Tensor b = {}, bool training = false, double momentum = 0.1,
                                  double eps = 1e-5, SourceLocation loc = SourceLocation::here());
/// Batch statistics for layers with cumulative momentum: y, mean [c], biased var [c].
struct BatchNormStats {
  Tensor y, mean, var;
};
TD_API BatchNormStats batch_norm_stats(Tensor x, Tensor w = {}, Tensor b = {}, double eps = 1e-5,
                                       SourceLocation loc = SourceLocation::here());
/// x [n, c, ...] normalised over each of num_groups groups of channels; w [c], b [c].
TD_API Tensor group_norm(Tensor x, int64_t num_groups, Tensor w = {}, Tensor b = {},
                         double eps = 1e-5, SourceLocation loc = SourceLocation::here());
/// Each channel of each sample normalised over its spatial dimensions.
TD_API BatchNormResult instance_norm(Tensor x, Tensor running_mean = {}, Tensor running_var = {},
                                     Tensor w = {}, Tensor b = {}, bool use_input_stats = true,
                                     double momentum = 0.1, double eps = 1e-5,
                                     SourceLocation loc = SourceLocation::here());
/// x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta for x [n, c, ...].
TD_API Tensor local_response_norm(Tensor x, int64_t size, double alpha = 1e-4, double beta = 0.75,
                                  double k = 1.0, SourceLocation loc = SourceLocation::here());
/// x / max(||x||_p, eps) along dim.
TD_API Tensor normalize(Tensor x, double p = 2.0, int64_t dim = 1, double eps = 1e-12,
                        SourceLocation loc = SourceLocation::here());

}  // namespace tandem
