// SPDX-License-Identifier: Apache-2.0
// ConvNeXt (Liu et al. 2022) with torchvision's options, keys and initial values.
#pragma once

#include <array>
#include <optional>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct ConvNeXtOptions {
  int64_t num_classes = 1000;
  std::optional<double> stochastic_depth_prob = {};  ///< unset: the variant's
  double layer_scale = 1e-6;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API ConvNeXt : public nn::Module {
 public:
  /// Channels and blocks of the four stages; `drop` is the variant's stochastic depth.
  ConvNeXt(std::array<int64_t, 4> channels, std::array<int64_t, 4> blocks, double drop,
           ConvNeXtOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  ConvNeXtOptions options;
};

TD_API ConvNeXt convnext_tiny(ConvNeXtOptions options = {});
TD_API ConvNeXt convnext_small(ConvNeXtOptions options = {});
TD_API ConvNeXt convnext_base(ConvNeXtOptions options = {});
TD_API ConvNeXt convnext_large(ConvNeXtOptions options = {});

}  // namespace tandem::models
