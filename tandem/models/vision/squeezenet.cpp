// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/squeezenet.h"

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

/// A 1x1 convolution, then parallel 1x1 and 3x3 convolutions.
class Fire : public nn::Module {
 public:
  Fire(int64_t in, int64_t narrow, int64_t wide)
      : squeeze(in, narrow, 1),
        expand1x1(narrow, wide, 1),
        expand3x3(narrow, wide, 3, {.padding = {1}}) {
    TD_REGISTER(squeeze, expand1x1, expand3x3);
  }
  Tensor forward(Tensor x) {
    x = relu(squeeze(std::move(x)));
    return cat({relu(expand1x1(x)), relu(expand3x3(x))}, 1);
  }
  nn::Conv2d squeeze, expand1x1, expand3x3;
};

Tensor kaiming_uniform_fan_in(const Shape& shape) { return nn::init::kaiming_uniform(shape); }

}  // namespace

SqueezeNet::SqueezeNet(const std::string& version, SqueezeNetOptions o) : options(o) {
  TD_CHECK(version == "1_0" || version == "1_1", Value,
           "SqueezeNet has the versions 1_0 and 1_1, got {}", version);
  const bool first = version == "1_0";
  const int64_t stem = first ? 96 : 64;
  auto pool = [&] { features.append(nn::MaxPool2d(3, {.stride = {2}, .ceil_mode = true})); };
  features.append(nn::Conv2d(o.in_channels, stem, first ? 7 : 3, {.stride = {2}}));
  features.append(nn::ReLU());
  pool();
  int64_t in = stem, fires = 0;
  for (const int64_t narrow : {16, 16, 32, 32, 48, 48, 64, 64}) {
    features.append(Fire(in, narrow, 4 * narrow));
    in = 8 * narrow;
    ++fires;
    if (first ? fires == 3 || fires == 7 : fires == 2 || fires == 4) pool();
  }
  nn::Conv2d last(in, o.num_classes, 1);
  classifier = nn::Sequential(nn::Dropout(o.dropout), last, nn::ReLU(), nn::AdaptiveAvgPool2d(1));
  TD_REGISTER(features, classifier);
  init_weights(*this, kaiming_uniform_fan_in, nullptr);
  last.weight.assign_(normal_001(last.weight.shape()));
}
Tensor SqueezeNet::forward(Tensor x) { return classifier(features(std::move(x))).flatten(1); }

SqueezeNet squeezenet1_0(SqueezeNetOptions o) { return SqueezeNet("1_0", o); }
SqueezeNet squeezenet1_1(SqueezeNetOptions o) { return SqueezeNet("1_1", o); }

}  // namespace tandem::models
