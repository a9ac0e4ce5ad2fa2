// SPDX-License-Identifier: Apache-2.0
// AdaRound: each weight is rounded up or down so that the layer's results suffer least, which is
// not always to the nearest code. Nagel et al., Up or Down? Adaptive Rounding for Post-Training
// Quantization, https://arxiv.org/abs/2004.10568.
#pragma once

#include "tandem/quant/network.h"

namespace tandem::quant {

/// Sums over what a layer reads, with a row for each position of its result: x in the network in
/// floating point, r in the quantised one. A grouped convolution has them for each group.
struct LayerSums {
  Tensor products;  ///< f32 [groups, k, k]: of r r^T
  Tensor crossed;   ///< f32 [groups, k, k]: of x r^T
  Tensor x, r;      ///< f32 [groups, k]
  int64_t rows = 0;
  /// Add what the layer reads for a batch. Of very many positions some are taken, evenly.
  TD_API void add(const Layer& layer, const Tensor& in_float, const Tensor& in_codes);
};

/// Whether the products of what the layer reads fit into memory.
TD_API bool can_adapt(const Layer& layer);

/// Which codes of the weight are floor(weight / scale) + 1 and which floor(weight / scale): 1 and 0
/// in u8, of the weight's shape. `scale` is one number or one for each output. Minimises over V
///   sum |W x - s q r|^2 / u + sum (1 - |2 h(V) - 1|^beta),   q = floor(W / s) + h(V),
///   h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1),
/// by Adam with the learning rate 0.05, where u is what a step of one code costs on average; the
/// second term comes in after a fifth of the `steps`, and beta falls from 20 to 2, so that h ends
/// at 0 or 1. `centred`: what the bias can make up for costs nothing. An output for which rounding
/// to the nearest is better is rounded so.
TD_API Tensor adaptive_rounding(const Layer& layer, const Tensor& scale, const LayerSums& sums,
                                bool centred, int64_t steps);

/// The mean of W x - v r for each output.
TD_API Tensor mean_error(const Layer& layer, const Tensor& v, const LayerSums& sums);

}  // namespace tandem::quant
