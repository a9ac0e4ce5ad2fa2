// SPDX-License-Identifier: Apache-2.0
// Building blocks of the convolutional nets: convolution + norm + activation, squeeze and
// excitation, rounding of widths, and initial values by the rank of a weight.
#pragma once

#include <optional>

#include "tandem/nn/nn.h"

namespace tandem::models {

/// Options of conv_norm. Padding keeps the size at stride 1.
struct ConvNorm {
  int64_t kernel = 3, stride = 1, groups = 1, dilation = 1;
  nn::BatchNormOptions norm = {};
};
/// Conv2d without bias, BatchNorm2d and, if given, an activation: keys "0", "1".
nn::Sequential conv_norm(int64_t in, int64_t out, const ConvNorm& o,
                         std::optional<nn::AnyModule> activation = {});

/// Scales x by a factor per channel, computed from the channel means by two 1x1 convolutions (Hu et
/// al. 2018). `smooth`: SiLU and sigmoid as their activations, else ReLU and hardsigmoid.
class SqueezeExcitation : public nn::Module {
 public:
  SqueezeExcitation(int64_t channels, int64_t squeeze, bool smooth);
  Tensor forward(Tensor x);
  nn::Conv2d fc1, fc2;
  bool smooth;
};

/// The multiple of `divisor` nearest to v, at least `divisor` and at least 0.9 v.
int64_t make_divisible(double v, int64_t divisor = 8);

/// A rule for the initial values of one weight; nullptr keeps those drawn by the layer.
using WeightInit = Tensor (*)(const Shape& shape);
/// Initialise every weight of rank 4 by `conv` and of rank 2 by `linear`, and their biases with 0.
/// Norms keep 1 and 0.
void init_weights(nn::Module& m, WeightInit conv, WeightInit linear);

// Rules used by several families: normal with variance 2 / fan, or with a fixed deviation.
Tensor kaiming_fan_out(const Shape& shape);
Tensor kaiming_fan_in(const Shape& shape);
Tensor normal_001(const Shape& shape);

}  // namespace tandem::models
