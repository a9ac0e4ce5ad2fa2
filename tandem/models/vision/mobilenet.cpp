// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/mobilenet.h"

#include <algorithm>
#include <vector>

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

/// Widens a narrow tensor, filters it channel by channel and narrows it again; adds x if the shape
/// is unchanged.
class InvertedResidual : public nn::Module {
 public:
  InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t expand)
      : shortcut(stride == 1 && in == out) {
    const int64_t wide = in * expand;
    if (expand != 1) conv.append(conv_norm(in, wide, {.kernel = 1}, nn::ReLU6()));
    conv.append(conv_norm(wide, wide, {.stride = stride, .groups = wide}, nn::ReLU6()));
    conv.append(nn::Conv2d(wide, out, 1, {.bias = false}));
    conv.append(nn::BatchNorm2d(out));
    TD_REGISTER(conv);
  }
  Tensor forward(Tensor x) { return shortcut ? x + conv(x) : conv(x); }
  nn::Sequential conv;
  bool shortcut;
};

/// One block of MobileNetV3: sizes before width_mult.
struct BlockV3 {
  int64_t in, kernel, expanded, out;
  bool squeeze, hardswish;
  int64_t stride;
};
constexpr BlockV3 kLarge[] = {
    {16, 3, 16, 16, false, false, 1},  {16, 3, 64, 24, false, false, 2},
    {24, 3, 72, 24, false, false, 1},  {24, 5, 72, 40, true, false, 2},
    {40, 5, 120, 40, true, false, 1},  {40, 5, 120, 40, true, false, 1},
    {40, 3, 240, 80, false, true, 2},  {80, 3, 200, 80, false, true, 1},
    {80, 3, 184, 80, false, true, 1},  {80, 3, 184, 80, false, true, 1},
    {80, 3, 480, 112, true, true, 1},  {112, 3, 672, 112, true, true, 1},
    {112, 5, 672, 160, true, true, 2}, {160, 5, 960, 160, true, true, 1},
    {160, 5, 960, 160, true, true, 1},
};
constexpr BlockV3 kSmall[] = {
    {16, 3, 16, 16, true, false, 2},  {16, 3, 72, 24, false, false, 2},
    {24, 3, 88, 24, false, false, 1}, {24, 5, 96, 40, true, true, 2},
    {40, 5, 240, 40, true, true, 1},  {40, 5, 240, 40, true, true, 1},
    {40, 5, 120, 48, true, true, 1},  {48, 5, 144, 48, true, true, 1},
    {48, 5, 288, 96, true, true, 2},  {96, 5, 576, 96, true, true, 1},
    {96, 5, 576, 96, true, true, 1},
};

nn::BatchNormOptions norm_v3() { return {.eps = 0.001, .momentum = 0.01}; }

nn::AnyModule activation(bool hardswish) {
  if (hardswish) return nn::Hardswish();
  return nn::ReLU();
}

class InvertedResidualV3 : public nn::Module {
 public:
  InvertedResidualV3(const BlockV3& b, int64_t dilation)
      : shortcut(b.stride == 1 && b.in == b.out) {
    if (b.expanded != b.in)
      block.append(
          conv_norm(b.in, b.expanded, {.kernel = 1, .norm = norm_v3()}, activation(b.hardswish)));
    block.append(conv_norm(b.expanded, b.expanded,
                           {.kernel = b.kernel,
                            .stride = dilation > 1 ? 1 : b.stride,
                            .groups = b.expanded,
                            .dilation = dilation,
                            .norm = norm_v3()},
                           activation(b.hardswish)));
    if (b.squeeze)
      block.append(SqueezeExcitation(
          b.expanded, make_divisible(static_cast<double>(b.expanded / 4)), /*smooth=*/false));
    block.append(conv_norm(b.expanded, b.out, {.kernel = 1, .norm = norm_v3()}));
    TD_REGISTER(block);
  }
  Tensor forward(Tensor x) { return shortcut ? block(x) + x : block(x); }
  nn::Sequential block;
  bool shortcut;
};

/// The table with the options applied: the last three blocks are the tail.
std::vector<BlockV3> blocks_v3(bool large, const MobileNetV3Options& o) {
  std::vector<BlockV3> blocks;
  if (large)
    blocks.assign(std::begin(kLarge), std::end(kLarge));
  else
    blocks.assign(std::begin(kSmall), std::end(kSmall));
  auto width = [&](int64_t n) { return make_divisible(static_cast<double>(n) * o.width_mult); };
  const int64_t tail = o.reduced_tail ? 2 : 1;
  for (size_t i = 0; i < blocks.size(); ++i) {
    BlockV3& b = blocks[i];
    const size_t left = blocks.size() - i;
    if (left <= 3) b.out /= tail;
    if (left <= 2) {
      b.in /= tail;
      b.expanded /= tail;
    }
    b.in = width(b.in);
    b.expanded = width(b.expanded);
    b.out = width(b.out);
  }
  return blocks;
}

}  // namespace

MobileNetV2::MobileNetV2(MobileNetV2Options o) : options(o) {
  struct Stage {
    int64_t expand, out, blocks, stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  auto width = [&](int64_t n, double by) { return make_divisible(static_cast<double>(n) * by); };
  int64_t in = width(32, o.width_mult);
  const int64_t last = width(1280, std::max(1.0, o.width_mult));
  features.append(conv_norm(o.in_channels, in, {.stride = 2}, nn::ReLU6()));
  for (const Stage& s : kStages) {
    const int64_t out = width(s.out, o.width_mult);
    for (int64_t i = 0; i < s.blocks; ++i) {
      features.append(InvertedResidual(in, out, i == 0 ? s.stride : 1, s.expand));
      in = out;
    }
  }
  features.append(conv_norm(in, last, {.kernel = 1}, nn::ReLU6()));
  classifier = nn::Sequential(nn::Dropout(o.dropout), nn::Linear(last, o.num_classes));
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_fan_out, normal_001);
}
Tensor MobileNetV2::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 1).flatten(1));
}

MobileNetV3::MobileNetV3(bool large, MobileNetV3Options o) : options(o) {
  const std::vector<BlockV3> blocks = blocks_v3(large, o);
  features.append(
      conv_norm(o.in_channels, blocks[0].in, {.stride = 2, .norm = norm_v3()}, nn::Hardswish()));
  for (size_t i = 0; i < blocks.size(); ++i)
    features.append(InvertedResidualV3(blocks[i], o.dilated && blocks.size() - i <= 3 ? 2 : 1));
  const int64_t in = blocks.back().out, last = 6 * in;
  features.append(conv_norm(in, last, {.kernel = 1, .norm = norm_v3()}, nn::Hardswish()));
  const int64_t hidden = make_divisible(
      static_cast<double>((large ? 1280 : 1024) / (o.reduced_tail ? 2 : 1)) * o.width_mult);
  classifier = nn::Sequential(nn::Linear(last, hidden), nn::Hardswish(), nn::Dropout(o.dropout),
                              nn::Linear(hidden, o.num_classes));
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_fan_out, normal_001);
}
Tensor MobileNetV3::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 1).flatten(1));
}

MobileNetV2 mobilenet_v2(MobileNetV2Options o) { return MobileNetV2(o); }
MobileNetV3 mobilenet_v3_large(MobileNetV3Options o) { return MobileNetV3(true, o); }
MobileNetV3 mobilenet_v3_small(MobileNetV3Options o) { return MobileNetV3(false, o); }

}  // namespace tandem::models
