// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/resnet.h"

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride, int64_t groups, int64_t dilation) {
  return nn::Conv2d(in, out, 3,
                    {.stride = {stride},
                     .padding = {dilation},
                     .dilation = {dilation},
                     .groups = groups,
                     .bias = false});
}
nn::Conv2d conv1x1(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d(in, out, 1, {.stride = {stride}, .bias = false});
}
std::optional<nn::Sequential> shortcut(const ResNetBlockOptions& o, int64_t out) {
  if (o.stride == 1 && o.in == out) return {};
  return nn::Sequential(conv1x1(o.in, out, o.stride), nn::BatchNorm2d(out));
}
int64_t inner_width(const ResNetBlockOptions& o) { return o.planes * o.base_width / 64 * o.groups; }

/// Where the next block begins.
struct Place {
  int64_t in = 64, dilation = 1;
};

template <class Block>
nn::Sequential stage(Place& at, int64_t planes, int64_t blocks, int64_t stride, bool dilate,
                     const ResNetOptions& o) {
  const int64_t before = at.dilation;
  if (dilate) at.dilation *= std::exchange(stride, 1);
  nn::Sequential s;
  for (int64_t i = 0; i < blocks; ++i) {
    s.append(Block({.in = at.in,
                    .planes = planes,
                    .stride = i == 0 ? stride : 1,
                    .dilation = i == 0 ? before : at.dilation,
                    .groups = o.groups,
                    .base_width = o.width_per_group}));
    at.in = planes * Block::kExpansion;
  }
  return s;
}

}  // namespace

BasicBlock::BasicBlock(const ResNetBlockOptions& o)
    : conv1(conv3x3(o.in, o.planes, o.stride, 1, 1)),
      bn1(o.planes),
      conv2(conv3x3(o.planes, o.planes, 1, 1, 1)),
      bn2(o.planes),
      downsample(shortcut(o, o.planes)) {
  TD_CHECK(o.groups == 1 && o.base_width == 64 && o.dilation == 1, Value,
           "a ResNet of basic blocks has groups 1, width_per_group 64 and no dilation, got {}, {} "
           "and dilation {}",
           o.groups, o.base_width, o.dilation);
  TD_REGISTER(conv1, bn1, conv2, bn2, downsample);
}
Tensor BasicBlock::forward(Tensor x) {
  Tensor y = relu(bn1(conv1(x)));
  y = bn2(conv2(std::move(y)));
  return relu(std::move(y) + (downsample ? (*downsample)(x) : x));
}

Bottleneck::Bottleneck(const ResNetBlockOptions& o)
    : conv1(conv1x1(o.in, inner_width(o))),
      bn1(inner_width(o)),
      conv2(conv3x3(inner_width(o), inner_width(o), o.stride, o.groups, o.dilation)),
      bn2(inner_width(o)),
      conv3(conv1x1(inner_width(o), 4 * o.planes)),
      bn3(4 * o.planes),
      downsample(shortcut(o, 4 * o.planes)) {
  TD_REGISTER(conv1, bn1, conv2, bn2, conv3, bn3, downsample);
}
Tensor Bottleneck::forward(Tensor x) {
  Tensor y = relu(bn1(conv1(x)));
  y = relu(bn2(conv2(std::move(y))));
  y = bn3(conv3(std::move(y)));
  return relu(std::move(y) + (downsample ? (*downsample)(x) : x));
}

ResNet::ResNet(bool bottleneck, std::array<int64_t, 4> layers, ResNetOptions o)
    : conv1(o.in_channels, 64, 7, {.stride = {2}, .padding = {3}, .bias = false}),
      bn1(64),
      fc(512 * (bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion), o.num_classes),
      options(o) {
  for (const int64_t n : layers)
    TD_CHECK(n > 0, Value, "a ResNet expects at least one block in each stage, got {}", n);
  auto* const make = bottleneck ? &stage<Bottleneck> : &stage<BasicBlock>;
  Place at;
  layer1 = make(at, 64, layers[0], 1, false, o);
  layer2 = make(at, 128, layers[1], 2, o.replace_stride_with_dilation[0], o);
  layer3 = make(at, 256, layers[2], 2, o.replace_stride_with_dilation[1], o);
  layer4 = make(at, 512, layers[3], 2, o.replace_stride_with_dilation[2], o);
  TD_REGISTER(conv1, bn1, layer1, layer2, layer3, layer4, fc);
  init_weights(*this, kaiming_fan_out, nullptr);
  if (!o.zero_init_residual) return;
  const std::string last = bottleneck ? ".bn3.weight" : ".bn2.weight";
  for (auto& [path, p] : named_parameters())
    if (path.ends_with(last)) p.assign_(zeros(p.shape()));
}

Tensor ResNet::forward(Tensor x) {
  x = relu(bn1(conv1(std::move(x))));
  x = max_pool2d(std::move(x), 3, 2, 1);
  x = layer4(layer3(layer2(layer1(std::move(x)))));
  return fc(adaptive_avg_pool2d(std::move(x), 1).flatten(1));
}

ResNet resnet18(ResNetOptions o) { return ResNet(false, {2, 2, 2, 2}, o); }
ResNet resnet34(ResNetOptions o) { return ResNet(false, {3, 4, 6, 3}, o); }
ResNet resnet50(ResNetOptions o) { return ResNet(true, {3, 4, 6, 3}, o); }
ResNet resnet101(ResNetOptions o) { return ResNet(true, {3, 4, 23, 3}, o); }
ResNet resnet152(ResNetOptions o) { return ResNet(true, {3, 8, 36, 3}, o); }
ResNet resnext50_32x4d(ResNetOptions o) {
  o.groups = 32;
  o.width_per_group = 4;
  return resnet50(o);
}
ResNet resnext101_32x8d(ResNetOptions o) {
  o.groups = 32;
  o.width_per_group = 8;
  return resnet101(o);
}
ResNet wide_resnet50_2(ResNetOptions o) {
  o.width_per_group = 128;
  return resnet50(o);
}
ResNet wide_resnet101_2(ResNetOptions o) {
  o.width_per_group = 128;
  return resnet101(o);
}

}  // namespace tandem::models
