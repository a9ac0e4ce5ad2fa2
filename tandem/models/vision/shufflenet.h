// SPDX-License-Identifier: Apache-2.0
// ShuffleNetV2 (Ma et al. 2018) with torchvision's keys and initial values.
#pragma once

#include <array>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct ShuffleNetV2Options {
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API ShuffleNetV2 : public nn::Module {
 public:
  /// Blocks of stages 2 to 4, and the channels of the stem, the stages and the last convolution.
  ShuffleNetV2(std::array<int64_t, 3> repeats, std::array<int64_t, 5> channels,
               ShuffleNetV2Options options = {});
  Tensor forward(Tensor x);
  nn::Sequential conv1, stage2, stage3, stage4, conv5;
  nn::Linear fc;
  ShuffleNetV2Options options;
};

TD_API ShuffleNetV2 shufflenet_v2_x0_5(ShuffleNetV2Options options = {});
TD_API ShuffleNetV2 shufflenet_v2_x1_0(ShuffleNetV2Options options = {});
TD_API ShuffleNetV2 shufflenet_v2_x1_5(ShuffleNetV2Options options = {});
TD_API ShuffleNetV2 shufflenet_v2_x2_0(ShuffleNetV2Options options = {});

}  // namespace tandem::models
