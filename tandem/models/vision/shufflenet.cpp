// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/shufflenet.h"

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

nn::Conv2d depthwise(int64_t channels, int64_t stride) {
  return nn::Conv2d(channels, channels, 3,
                    {.stride = {stride}, .padding = {1}, .groups = channels, .bias = false});
}
nn::Conv2d pointwise(int64_t in, int64_t out) { return nn::Conv2d(in, out, 1, {.bias = false}); }

/// Half of the channels pass through (or branch1, which halves their size), the others take
/// branch2; then the two halves are interleaved.
class ShuffleUnit : public nn::Module {
 public:
  ShuffleUnit(int64_t in, int64_t out, int64_t stride) : stride(stride) {
    const int64_t half = out / 2;
    if (stride > 1)
      branch1 = nn::Sequential(depthwise(in, stride), nn::BatchNorm2d(in), pointwise(in, half),
                               nn::BatchNorm2d(half), nn::ReLU());
    branch2 = nn::Sequential(pointwise(stride > 1 ? in : half, half), nn::BatchNorm2d(half),
                             nn::ReLU(), depthwise(half, stride), nn::BatchNorm2d(half),
                             pointwise(half, half), nn::BatchNorm2d(half), nn::ReLU());
    TD_REGISTER(branch1, branch2);
  }
  Tensor forward(Tensor x) {
    if (stride > 1) return channel_shuffle(cat({branch1(x), branch2(x)}, 1), 2);
    const std::vector<Tensor> parts = x.chunk(2, 1);
    return channel_shuffle(cat({parts[0], branch2(parts[1])}, 1), 2);
  }
  nn::Sequential branch1, branch2;
  int64_t stride;
};

nn::Sequential stage(int64_t in, int64_t out, int64_t repeats) {
  nn::Sequential s;
  for (int64_t i = 0; i < repeats; ++i)
    s.append(ShuffleUnit(i == 0 ? in : out, out, i == 0 ? 2 : 1));
  return s;
}

ShuffleNetV2 of_width(std::array<int64_t, 5> channels, const ShuffleNetV2Options& o) {
  return ShuffleNetV2({4, 8, 4}, channels, o);
}

}  // namespace

ShuffleNetV2::ShuffleNetV2(std::array<int64_t, 3> repeats, std::array<int64_t, 5> channels,
                           ShuffleNetV2Options o)
    : conv1(conv_norm(o.in_channels, channels[0], {.stride = 2}, nn::ReLU())),
      stage2(stage(channels[0], channels[1], repeats[0])),
      stage3(stage(channels[1], channels[2], repeats[1])),
      stage4(stage(channels[2], channels[3], repeats[2])),
      conv5(conv_norm(channels[3], channels[4], {.kernel = 1}, nn::ReLU())),
      fc(channels[4], o.num_classes),
      options(o) {
  TD_REGISTER(conv1, stage2, stage3, stage4, conv5, fc);
}
Tensor ShuffleNetV2::forward(Tensor x) {
  x = max_pool2d(conv1(std::move(x)), 3, 2, 1);
  x = conv5(stage4(stage3(stage2(std::move(x)))));
  return fc(x.mean({2, 3}));
}

ShuffleNetV2 shufflenet_v2_x0_5(ShuffleNetV2Options o) {
  return of_width({24, 48, 96, 192, 1024}, o);
}
ShuffleNetV2 shufflenet_v2_x1_0(ShuffleNetV2Options o) {
  return of_width({24, 116, 232, 464, 1024}, o);
}
ShuffleNetV2 shufflenet_v2_x1_5(ShuffleNetV2Options o) {
  return of_width({24, 176, 352, 704, 1024}, o);
}
ShuffleNetV2 shufflenet_v2_x2_0(ShuffleNetV2Options o) {
  return of_width({24, 244, 488, 976, 2048}, o);
}

}  // namespace tandem::models
