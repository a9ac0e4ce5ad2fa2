// SPDX-License-Identifier: Apache-2.0
// DenseNet (Huang et al. 2017) with torchvision's options, keys and initial values.
#pragma once

#include <array>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DenseNetOptions {
  int64_t bn_size = 4;   ///< width of the 1x1 convolutions, in growth rates
  double drop_rate = 0;  ///< dropout after each layer
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API DenseNet : public nn::Module {
 public:
  /// Layers of the four blocks, channels added by each layer, and channels before the first.
  DenseNet(int64_t growth_rate, std::array<int64_t, 4> block_config, int64_t num_init_features,
           DenseNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features;
  nn::Linear classifier{1, 1};
  DenseNetOptions options;
};

TD_API DenseNet densenet121(DenseNetOptions options = {});
TD_API DenseNet densenet161(DenseNetOptions options = {});
TD_API DenseNet densenet169(DenseNetOptions options = {});
TD_API DenseNet densenet201(DenseNetOptions options = {});

}  // namespace tandem::models
