// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/efficientnet.h"

#include <algorithm>
#include <cmath>

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Variant {
  double width, depth, dropout;
  nn::BatchNormOptions norm;
};
Variant variant_of(int64_t i) {
  const nn::BatchNormOptions slow{.eps = 0.001, .momentum = 0.01};
  const Variant variants[] = {{1.0, 1.0, 0.2, {}},   {1.0, 1.1, 0.2, {}},  {1.1, 1.2, 0.3, {}},
                              {1.2, 1.4, 0.3, {}},   {1.4, 1.8, 0.4, {}},  {1.6, 2.2, 0.4, slow},
                              {1.8, 2.6, 0.5, slow}, {2.0, 3.1, 0.5, slow}};
  TD_CHECK(i >= 0 && i < 8, Value, "EfficientNet has the variants 0 to 7, got {}", i);
  return variants[i];
}

struct Block {
  int64_t in, out, expand, kernel, stride;
};

/// Inverted residual with squeeze and excitation and stochastic depth.
class MBConv : public nn::Module {
 public:
  MBConv(const Block& b, double drop, const nn::BatchNormOptions& norm)
      : stochastic_depth(drop), shortcut(b.stride == 1 && b.in == b.out) {
    const int64_t wide = make_divisible(static_cast<double>(b.in * b.expand));
    if (wide != b.in) block.append(conv_norm(b.in, wide, {.kernel = 1, .norm = norm}, nn::SiLU()));
    block.append(conv_norm(wide, wide,
                           {.kernel = b.kernel, .stride = b.stride, .groups = wide, .norm = norm},
                           nn::SiLU()));
    block.append(SqueezeExcitation(wide, std::max<int64_t>(1, b.in / 4), /*smooth=*/true));
    block.append(conv_norm(wide, b.out, {.kernel = 1, .norm = norm}));
    TD_REGISTER(block, stochastic_depth);
  }
  Tensor forward(Tensor x) { return shortcut ? stochastic_depth(block(x)) + x : block(x); }
  nn::Sequential block;
  nn::DropPath stochastic_depth;
  bool shortcut;
};

Tensor uniform_by_outputs(const Shape& shape) {
  const double range = 1 / std::sqrt(static_cast<double>(shape[0].value()));
  return nn::init::uniform(shape, -range, range);
}

}  // namespace

EfficientNet::EfficientNet(int64_t variant, EfficientNetOptions o) : options(o) {
  struct Stage {
    int64_t expand, kernel, stride, in, out, blocks;
  };
  constexpr Stage kStages[] = {{1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},  {6, 5, 2, 24, 40, 2},
                               {6, 3, 2, 40, 80, 3},  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4},
                               {6, 3, 1, 192, 320, 1}};
  const Variant v = variant_of(variant);
  auto width = [&](int64_t n) { return make_divisible(static_cast<double>(n) * v.width); };
  auto depth = [&](int64_t n) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(n) * v.depth));
  };
  int64_t all = 0, done = 0;
  for (const Stage& s : kStages) all += depth(s.blocks);
  features.append(conv_norm(o.in_channels, width(32), {.stride = 2, .norm = v.norm}, nn::SiLU()));
  for (const Stage& s : kStages) {
    nn::Sequential stage;
    for (int64_t i = 0; i < depth(s.blocks); ++i, ++done) {
      const Block b{i == 0 ? width(s.in) : width(s.out), width(s.out), s.expand, s.kernel,
                    i == 0 ? s.stride : 1};
      stage.append(
          MBConv(b, o.stochastic_depth_prob * static_cast<double>(done) / static_cast<double>(all),
                 v.norm));
    }
    features.append(std::move(stage));
  }
  const int64_t in = width(320), last = 4 * in;
  features.append(conv_norm(in, last, {.kernel = 1, .norm = v.norm}, nn::SiLU()));
  classifier =
      nn::Sequential(nn::Dropout(o.dropout.value_or(v.dropout)), nn::Linear(last, o.num_classes));
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_fan_out, uniform_by_outputs);
}
Tensor EfficientNet::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 1).flatten(1));
}

EfficientNet efficientnet_b0(EfficientNetOptions o) { return EfficientNet(0, o); }
EfficientNet efficientnet_b1(EfficientNetOptions o) { return EfficientNet(1, o); }
EfficientNet efficientnet_b2(EfficientNetOptions o) { return EfficientNet(2, o); }
EfficientNet efficientnet_b3(EfficientNetOptions o) { return EfficientNet(3, o); }
EfficientNet efficientnet_b4(EfficientNetOptions o) { return EfficientNet(4, o); }
EfficientNet efficientnet_b5(EfficientNetOptions o) { return EfficientNet(5, o); }
EfficientNet efficientnet_b6(EfficientNetOptions o) { return EfficientNet(6, o); }
EfficientNet efficientnet_b7(EfficientNetOptions o) { return EfficientNet(7, o); }

}  // namespace tandem::models
