// SPDX-License-Identifier: Apache-2.0
// SmoothQuant: inputs of a linear layer whose values are far larger than those of others leave few
// codes to the rest; they are divided by a factor that their weights are multiplied by. Xiao et
// al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models,
// https://arxiv.org/abs/2211.10438.
#pragma once

#include "tandem/quant/calibrate.h"

namespace tandem::quant {

/// Scale the inputs j of linear layers (and matmuls) by 1 / s_j and their weights by s_j,
///   s_j = max |x_j|^alpha / max |w_j|^(1 - alpha),
/// with maxima over the batches and over all layers that read x. The network computes the same
/// function. A layer or RMS norm before takes the factor into its weight; elsewhere x is multiplied
/// where layers read it. Returns how many values were scaled. Throws Value for an alpha that is not
/// between 0 and 1, and for networks that were trained with rounding.
TD_API int smooth(Network& net, const Batches& batches, double alpha);

}  // namespace tandem::quant
