// SPDX-License-Identifier: Apache-2.0
// MobileNetV2 and V3 (Sandler et al. 2018, Howard et al. 2019) with torchvision's options, keys and
// initial values.
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct MobileNetV2Options {
  int64_t num_classes = 1000;
  double width_mult = 1.0;
  double dropout = 0.2;
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API MobileNetV2 : public nn::Module {
 public:
  explicit MobileNetV2(MobileNetV2Options options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  MobileNetV2Options options;
};

struct MobileNetV3Options {
  int64_t num_classes = 1000;
  double dropout = 0.2;
  double width_mult = 1.0;
  bool reduced_tail = false;  ///< half the channels in the last stage
  bool dilated = false;       ///< dilation 2 in the last stage
  int64_t in_channels = 3;
};

/// x [n, in_channels, h, w] -> [n, num_classes].
class TD_API MobileNetV3 : public nn::Module {
 public:
  MobileNetV3(bool large, MobileNetV3Options options = {});
  Tensor forward(Tensor x);
  nn::Sequential features, classifier;
  MobileNetV3Options options;
};

TD_API MobileNetV2 mobilenet_v2(MobileNetV2Options options = {});
TD_API MobileNetV3 mobilenet_v3_large(MobileNetV3Options options = {});
TD_API MobileNetV3 mobilenet_v3_small(MobileNetV3Options options = {});

}  // namespace tandem::models
