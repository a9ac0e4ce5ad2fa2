// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/convnext.h"

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

/// LayerNorm over the channels of x [n, c, h, w].
class LayerNorm2d : public nn::Module {
 public:
  explicit LayerNorm2d(int64_t channels)
      : weight(ones({channels})), bias(zeros({channels})), channels(channels) {
    TD_REGISTER(weight, bias);
  }
  Tensor forward(Tensor x) {
    x = layer_norm(x.permute({0, 2, 3, 1}), {channels}, weight.value(), bias.value(), 1e-6);
    return x.permute({0, 3, 1, 2});
  }
  Param weight, bias;
  int64_t channels;
};

class Permute : public nn::Module {
 public:
  explicit Permute(IntList dims) : dims(std::move(dims)) { register_members(this, ""); }
  Tensor forward(Tensor x) { return x.permute(dims); }
  IntList dims;
};

/// A residual branch: 7x7 depthwise convolution, norm and an MLP over channels, scaled.
class CNBlock : public nn::Module {
 public:
  CNBlock(int64_t dim, double scale, double drop)
      : layer_scale(full({dim, 1, 1}, scale)),
        block(nn::Conv2d(dim, dim, 7, {.padding = {3}, .groups = dim}), Permute({0, 2, 3, 1}),
              nn::LayerNorm(dim, {.eps = 1e-6}), nn::Linear(dim, 4 * dim), nn::GELU(),
              nn::Linear(4 * dim, dim), Permute({0, 3, 1, 2})),
        stochastic_depth(drop) {
    TD_REGISTER(layer_scale, block, stochastic_depth);
  }
  Tensor forward(Tensor x) { return stochastic_depth(layer_scale.value() * block(x)) + x; }
  Param layer_scale;
  nn::Sequential block;
  nn::DropPath stochastic_depth;
};

Tensor truncated(const Shape& shape) { return nn::init::trunc_normal(shape, 0, 0.02); }

}  // namespace

ConvNeXt::ConvNeXt(std::array<int64_t, 4> channels, std::array<int64_t, 4> blocks, double drop,
                   ConvNeXtOptions o)
    : options(o) {
  drop = o.stochastic_depth_prob.value_or(drop);
  int64_t all = 0, done = 0;
  for (const int64_t n : blocks) all += n;
  TD_CHECK(all > 1, Value, "ConvNeXt expects at least two blocks, got {}", all);
  features.append(nn::Sequential(nn::Conv2d(o.in_channels, channels[0], 4, {.stride = {4}}),
                                 LayerNorm2d(channels[0])));
  for (size_t i = 0; i < 4; ++i) {
    nn::Sequential stage;
    for (int64_t k = 0; k < blocks[i]; ++k, ++done)
      stage.append(CNBlock(channels[i], o.layer_scale,
                           drop * static_cast<double>(done) / static_cast<double>(all - 1)));
    features.append(std::move(stage));
    if (i < 3)
      features.append(nn::Sequential(LayerNorm2d(channels[i]),
                                     nn::Conv2d(channels[i], channels[i + 1], 2, {.stride = {2}})));
  }
  classifier = nn::Sequential(LayerNorm2d(channels[3]), nn::Flatten(1),
                              nn::Linear(channels[3], o.num_classes));
  TD_REGISTER(features, classifier);
  init_weights(*this, truncated, truncated);
}
Tensor ConvNeXt::forward(Tensor x) {
  return classifier(adaptive_avg_pool2d(features(std::move(x)), 1));
}

ConvNeXt convnext_tiny(ConvNeXtOptions o) {
  return ConvNeXt({96, 192, 384, 768}, {3, 3, 9, 3}, 0.1, o);
}
ConvNeXt convnext_small(ConvNeXtOptions o) {
  return ConvNeXt({96, 192, 384, 768}, {3, 3, 27, 3}, 0.4, o);
}
ConvNeXt convnext_base(ConvNeXtOptions o) {
  return ConvNeXt({128, 256, 512, 1024}, {3, 3, 27, 3}, 0.5, o);
}
ConvNeXt convnext_large(ConvNeXtOptions o) {
  return ConvNeXt({192, 384, 768, 1536}, {3, 3, 27, 3}, 0.5, o);
}

}  // namespace tandem::models
