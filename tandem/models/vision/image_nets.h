// SPDX-License-Identifier: Apache-2.0
// Small convolutional networks for digits: Keras's MNIST example and one for 8 x 8 images.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

/// The model of keras.io's "Simple MNIST convnet": x [n, 1, h, w] -> [n, classes]; 34,826
/// parameters for 28 x 28 and 10 classes.
struct KerasConvNet : nn::Module {
  explicit KerasConvNet(int64_t classes = 10, int64_t size = 28)
      : fc(64 * side(size) * side(size), classes) {
    TD_REGISTER(conv1, conv2, drop, fc);
  }
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(conv1(x)), 2);
    x = max_pool2d(relu(conv2(x)), 2);
    return fc(drop(flatten(x, 1)));
  }
  /// Height and width after two convolutions and two poolings.
  static int64_t side(int64_t size) { return ((size - 2) / 2 - 2) / 2; }
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Dropout drop{0.5};
  nn::Linear fc;
};

/// Two 3 x 3 convolutions for 8 x 8 digits; x [n, 1, 8, 8] -> [n, classes].
struct DigitsCNN : nn::Module {
  explicit DigitsCNN(int64_t classes = 10, int64_t width = 16)
      : conv1(1, width, 3, {.padding = {1}}),
        conv2(width, 2 * width, 3, {.padding = {1}}),
        fc1(2 * width * 16, 64),
        fc2(64, classes) {
    TD_REGISTER(conv1, conv2, drop, fc1, fc2);
  }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(conv2(x)), 2);
    x = relu(fc1(drop(flatten(x, 1))));
    return fc2(x);
  }
  nn::Conv2d conv1, conv2;
  nn::Dropout drop{0.25};
  nn::Linear fc1, fc2;
};

}  // namespace tandem::models
