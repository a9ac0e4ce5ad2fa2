// SPDX-License-Identifier: Apache-2.0
// EfficientNet B0 to B7 (Tan and Le 2019) with torchvision's options, keys and initial values.
#pragma once

#include <optional>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct EfficientNetOptions {
  int64_t num_classes = 1000;
  std::optional<double> dropout = {};  ///< unset: the variant's
  double stochastic_depth_prob = 0.2;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API EfficientNet : public nn::Module {
 public:
  /// `variant` 0 to 7; throws Value for others.
  explicit EfficientNet(int64_t variant, EfficientNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  EfficientNetOptions options;
};

TD_API EfficientNet efficientnet_b0(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b1(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b2(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b3(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b4(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b5(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b6(EfficientNetOptions options = {});
TD_API EfficientNet efficientnet_b7(EfficientNetOptions options = {});

}  // namespace tandem::models
