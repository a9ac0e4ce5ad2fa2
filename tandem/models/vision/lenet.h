// SPDX-License-Identifier: Apache-2.0
// LeNet-5 (LeCun et al. 1998) as taught today: ReLU and max pooling, 61,706 parameters.
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct LeNetOptions {
  int64_t num_classes = 10;
  int64_t in_channels = 1;
};

/// x [n, in_channels, 28, 28] -> [n, num_classes].
class TD_API LeNet : public nn::Module {
 public:
  explicit LeNet(LeNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Conv2d conv1, conv2;
  nn::Linear fc1, fc2, fc3;
  LeNetOptions options;
};

TD_API LeNet lenet(LeNetOptions options = {});

}  // namespace tandem::models
