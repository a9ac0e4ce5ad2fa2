// SPDX-License-Identifier: Apache-2.0
// SqueezeNet 1.0 and 1.1 (Iandola et al. 2016) with torchvision's options, keys and initial values.
#pragma once

#include <string>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct SqueezeNetOptions {
  int64_t num_classes = 1000;
  double dropout = 0.5;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API SqueezeNet : public nn::Module {
 public:
  /// `version` "1_0" or "1_1"; throws Value for others.
  explicit SqueezeNet(const std::string& version, SqueezeNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  SqueezeNetOptions options;
};

TD_API SqueezeNet squeezenet1_0(SqueezeNetOptions options = {});
TD_API SqueezeNet squeezenet1_1(SqueezeNetOptions options = {});

}  // namespace tandem::models
