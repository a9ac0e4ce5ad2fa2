// SPDX-License-Identifier: Apache-2.0
// AlexNet and VGG (Krizhevsky 2014, Simonyan and Zisserman 2015) with torchvision's options, keys
// and initial values.
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct AlexNetOptions {
  int64_t num_classes = 1000;
  double dropout = 0.5;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w], h and w at least 63 -> [n, num_classes].
class TD_API AlexNet : public nn::Module {
 public:
  explicit AlexNet(AlexNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  AlexNetOptions options;
};

struct VGGOptions {
  int64_t num_classes = 1000;
  double dropout = 0.5;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w], h and w at least 32 -> [n, num_classes].
class TD_API VGG : public nn::Module {
 public:
  /// `layers` 11, 13, 16 or 19; throws Value for others. `batch_norm` after each convolution.
  VGG(int64_t layers, bool batch_norm, VGGOptions options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  VGGOptions options;
};

TD_API AlexNet alexnet(AlexNetOptions options = {});
TD_API VGG vgg11(VGGOptions options = {});
TD_API VGG vgg13(VGGOptions options = {});
TD_API VGG vgg16(VGGOptions options = {});
TD_API VGG vgg19(VGGOptions options = {});
TD_API VGG vgg11_bn(VGGOptions options = {});
TD_API VGG vgg13_bn(VGGOptions options = {});
TD_API VGG vgg16_bn(VGGOptions options = {});
TD_API VGG vgg19_bn(VGGOptions options = {});

}  // namespace tandem::models
