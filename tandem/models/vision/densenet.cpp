// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/densenet.h"

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

/// x [n, in, h, w] -> the `growth` channels that this layer adds.
class DenseLayer : public nn::Module {
 public:
  DenseLayer(int64_t in, int64_t growth, const DenseNetOptions& o)
      : norm1(in),
        conv1(in, o.bn_size * growth, 1, {.bias = false}),
        norm2(o.bn_size * growth),
        conv2(o.bn_size * growth, growth, 3, {.padding = {1}, .bias = false}),
        drop_rate(o.drop_rate) {
    TD_REGISTER(norm1, conv1, norm2, conv2);
  }
  Tensor forward(Tensor x) {
    x = conv1(relu(norm1(std::move(x))));
    x = conv2(relu(norm2(std::move(x))));
    return drop_rate > 0 ? dropout(std::move(x), drop_rate, is_training()) : x;
  }
  nn::BatchNorm2d norm1;
  nn::Conv2d conv1;
  nn::BatchNorm2d norm2;
  nn::Conv2d conv2;
  double drop_rate;
};

/// Each layer sees the block's input and the output of all layers before it.
class DenseBlock : public nn::ModuleDict {
 public:
  DenseBlock(int64_t layers, int64_t in, int64_t growth, const DenseNetOptions& o) {
    register_members(this, "");
    for (int64_t i = 0; i < layers; ++i)
      insert("denselayer" + std::to_string(i + 1), DenseLayer(in + i * growth, growth, o));
  }
  Tensor forward(Tensor x) {
    std::vector<Tensor> all{std::move(x)};
    for (auto& [name, layer] : items) all.push_back(layer(all.size() == 1 ? all[0] : cat(all, 1)));
    return cat(all, 1);
  }
};

}  // namespace

DenseNet::DenseNet(int64_t growth, std::array<int64_t, 4> blocks, int64_t channels,
                   DenseNetOptions o)
    : options(o) {
  std::vector<std::pair<std::string, nn::AnyModule>> list;
  list.emplace_back("conv0", nn::Conv2d(o.in_channels, channels, 7,
                                        {.stride = {2}, .padding = {3}, .bias = false}));
  list.emplace_back("norm0", nn::BatchNorm2d(channels));
  list.emplace_back("relu0", nn::ReLU());
  list.emplace_back("pool0", nn::MaxPool2d(3, {.stride = {2}, .padding = {1}}));
  for (size_t i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i + 1);
    list.emplace_back("denseblock" + number, DenseBlock(blocks[i], channels, growth, o));
    channels += blocks[i] * growth;
    if (i == 3) break;
    list.emplace_back(
        "transition" + number,
        nn::Sequential::named({{"norm", nn::BatchNorm2d(channels)},
                               {"relu", nn::ReLU()},
                               {"conv", nn::Conv2d(channels, channels / 2, 1, {.bias = false})},
                               {"pool", nn::AvgPool2d(2, {.stride = {2}})}}));
    channels /= 2;
  }
  list.emplace_back("norm5", nn::BatchNorm2d(channels));
  features = nn::Sequential::named(std::move(list));
  classifier = nn::Linear(channels, o.num_classes);
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_fan_in, nullptr);
  classifier.bias.assign_(zeros(classifier.bias.shape()));
}
Tensor DenseNet::forward(Tensor x) {
  x = relu(features(std::move(x)));
  return classifier(adaptive_avg_pool2d(std::move(x), 1).flatten(1));
}

DenseNet densenet121(DenseNetOptions o) { return DenseNet(32, {6, 12, 24, 16}, 64, o); }
DenseNet densenet161(DenseNetOptions o) { return DenseNet(48, {6, 12, 36, 24}, 96, o); }
DenseNet densenet169(DenseNetOptions o) { return DenseNet(32, {6, 12, 32, 32}, 64, o); }
DenseNet densenet201(DenseNetOptions o) { return DenseNet(32, {6, 12, 48, 32}, 64, o); }

}  // namespace tandem::models
