// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/lenet.h"

#include "tandem/ops/ops.h"

namespace tandem::models {

LeNet::LeNet(LeNetOptions o)
    : conv1(o.in_channels, 6, 5, {.padding = {2}}),
      conv2(6, 16, 5),
      fc1(16 * 5 * 5, 120),
      fc2(120, 84),
      fc3(84, o.num_classes),
      options(o) {
  TD_REGISTER(conv1, conv2, fc1, fc2, fc3);
}
Tensor LeNet::forward(Tensor x) {
  x = max_pool2d(relu(conv1(std::move(x))), 2);
  x = max_pool2d(relu(conv2(std::move(x))), 2);
  x = relu(fc1(x.flatten(1)));
  return fc3(relu(fc2(std::move(x))));
}

LeNet lenet(LeNetOptions o) { return LeNet(o); }

}  // namespace tandem::models
