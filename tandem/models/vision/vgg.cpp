// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/vgg.h"

#include <array>

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

AlexNet::AlexNet(AlexNetOptions o)
    : features(
          nn::Conv2d(o.in_channels, 64, 11, {.stride = {4}, .padding = {2}}), nn::ReLU(),
          nn::MaxPool2d(3, {.stride = {2}}), nn::Conv2d(64, 192, 5, {.padding = {2}}), nn::ReLU(),
          nn::MaxPool2d(3, {.stride = {2}}), nn::Conv2d(192, 384, 3, {.padding = {1}}), nn::ReLU(),
          nn::Conv2d(384, 256, 3, {.padding = {1}}), nn::ReLU(),
          nn::Conv2d(256, 256, 3, {.padding = {1}}), nn::ReLU(), nn::MaxPool2d(3, {.stride = {2}})),
      classifier(nn::Dropout(o.dropout), nn::Linear(256 * 6 * 6, 4096), nn::ReLU(),
                 nn::Dropout(o.dropout), nn::Linear(4096, 4096), nn::ReLU(),
                 nn::Linear(4096, o.num_classes)),
      options(o) {
  TD_REGISTER(features, classifier);
}
Tensor AlexNet::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 6).flatten(1));
}

VGG::VGG(int64_t layers, bool batch_norm, VGGOptions o) : options(o) {
  struct Plan {
    int64_t layers;
    std::array<int64_t, 5> convs;  // before each of the five pools
  };
  constexpr Plan kPlans[] = {
      {11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  const Plan* plan = nullptr;
  for (const Plan& p : kPlans)
    if (p.layers == layers) plan = &p;
  TD_CHECK(plan, Value, "VGG has 11, 13, 16 or 19 layers, got {}", layers);
  int64_t in = o.in_channels;
  for (size_t i = 0; i < 5; ++i) {
    for (int64_t k = 0; k < plan->convs[i]; ++k) {
      features.append(nn::Conv2d(in, kChannels[i], 3, {.padding = {1}}));
      if (batch_norm) features.append(nn::BatchNorm2d(kChannels[i]));
      features.append(nn::ReLU());
      in = kChannels[i];
    }
    features.append(nn::MaxPool2d(2));
  }
  classifier = nn::Sequential(nn::Linear(512 * 7 * 7, 4096), nn::ReLU(), nn::Dropout(o.dropout),
                              nn::Linear(4096, 4096), nn::ReLU(), nn::Dropout(o.dropout),
                              nn::Linear(4096, o.num_classes));
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_fan_out, normal_001);
}
Tensor VGG::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 7).flatten(1));
}

AlexNet alexnet(AlexNetOptions o) { return AlexNet(o); }
VGG vgg11(VGGOptions o) { return VGG(11, false, o); }
VGG vgg13(VGGOptions o) { return VGG(13, false, o); }
VGG vgg16(VGGOptions o) { return VGG(16, false, o); }
VGG vgg19(VGGOptions o) { return VGG(19, false, o); }
VGG vgg11_bn(VGGOptions o) { return VGG(11, true, o); }
VGG vgg13_bn(VGGOptions o) { return VGG(13, true, o); }
VGG vgg16_bn(VGGOptions o) { return VGG(16, true, o); }
VGG vgg19_bn(VGGOptions o) { return VGG(19, true, o); }

}  // namespace tandem::models
