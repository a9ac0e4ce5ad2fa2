// SPDX-License-Identifier: Apache-2.0
// What the families of convolutional nets share: convolution + norm + activation, squeeze and
// excitation, rounding of widths, and setting initial values by the rank of a weight.
#pragma once

#include <optional>

#include "tandem/nn/nn.h"

namespace tandem::models {

/// Of conv_norm. Padding keeps the size at stride 1.
struct ConvNorm {
  int64_t kernel = 3, stride = 1, groups = 1, dilation = 1;
  nn::BatchNormOptions norm = {};
};
/// Conv2d without bias, BatchNorm2d and, if given, an activation: keys "0", "1".
nn::Sequential conv_norm(int64_t in, int64_t out, const ConvNorm& o,
                         std::optional<nn::AnyModule> activation = {});

/// x times a factor per channel that two 1x1 convolutions make of the channel means (Hu et al.
/// 2018). `smooth`: SiLU and sigmoid between and after them, else ReLU and hardsigmoid.
class SqueezeExcitation : public nn::Module {
 public:
  SqueezeExcitation(int64_t channels, int64_t squeeze, bool smooth);
  Tensor forward(Tensor x);
  nn::Conv2d fc1, fc2;
  bool smooth;
};

/// The multiple of `divisor` nearest to v, at least `divisor` and at least 0.9 v.
int64_t make_divisible(double v, int64_t divisor = 8);

/// A rule for the values of one weight; nullptr keeps what the layer has drawn.
using WeightInit = Tensor (*)(const Shape& shape);
/// Set every weight of rank 4 by `conv` and of rank 2 by `linear`, and the biases beside them to 0.
/// Norms keep 1 and 0.
void init_weights(nn::Module& m, WeightInit conv, WeightInit linear);

// Rules used by several families: normal with variance 2 / fan, or with a fixed deviation.
Tensor kaiming_fan_out(const Shape& shape);
Tensor kaiming_fan_in(const Shape& shape);
Tensor normal_001(const Shape& shape);

}  // namespace tandem::models
