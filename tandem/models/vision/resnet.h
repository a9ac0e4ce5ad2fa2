// SPDX-License-Identifier: Apache-2.0
// ResNet, ResNeXt and Wide ResNet (He et al. 2016, Xie et al. 2017, Zagoruyko and Komodakis 2016)
// with torchvision's options, keys and initial values. In a bottleneck the stride is on the 3x3
// convolution (version 1.5).
#pragma once

#include <array>
#include <optional>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct ResNetOptions {
  int64_t num_classes = 1000;
  bool zero_init_residual = false;  ///< the last norm of each branch starts at 0
  int64_t groups = 1, width_per_group = 64;
  std::array<bool, 3> replace_stride_with_dilation = {};  ///< in layer2, layer3, layer4
  int64_t in_channels = 3;
};

/// Options of a block that depend on its place.
struct ResNetBlockOptions {
  int64_t in = 64, planes = 64, stride = 1, dilation = 1, groups = 1, base_width = 64;
};

/// Two 3x3 convolutions and a shortcut: `planes` channels.
class TD_API BasicBlock : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;
  explicit BasicBlock(const ResNetBlockOptions& o);
  Tensor forward(Tensor x);
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::optional<nn::Sequential> downsample;
};

/// 1x1, 3x3 and 1x1 convolutions and a shortcut: 4 * `planes` channels.
class TD_API Bottleneck : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;
  explicit Bottleneck(const ResNetBlockOptions& o);
  Tensor forward(Tensor x);
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  std::optional<nn::Sequential> downsample;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API ResNet : public nn::Module {
 public:
  /// `layers`: blocks in each of the four stages. Throws Value for sizes below 1.
  ResNet(bool bottleneck, std::array<int64_t, 4> layers, ResNetOptions options = {});
  Tensor forward(Tensor x);
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layer1, layer2, layer3, layer4;
  nn::Linear fc;
  ResNetOptions options;
};

TD_API ResNet resnet18(ResNetOptions options = {});
TD_API ResNet resnet34(ResNetOptions options = {});
TD_API ResNet resnet50(ResNetOptions options = {});
TD_API ResNet resnet101(ResNetOptions options = {});
TD_API ResNet resnet152(ResNetOptions options = {});
/// groups 32, width_per_group 4 (8), whatever the options say.
TD_API ResNet resnext50_32x4d(ResNetOptions options = {});
TD_API ResNet resnext101_32x8d(ResNetOptions options = {});
/// width_per_group 128, whatever the options say.
TD_API ResNet wide_resnet50_2(ResNetOptions options = {});
TD_API ResNet wide_resnet101_2(ResNetOptions options = {});

}  // namespace tandem::models
