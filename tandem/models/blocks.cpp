// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "tandem/models/blocks_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

nn::Sequential conv_norm(int64_t in, int64_t out, const ConvNorm& o,
                         std::optional<nn::AnyModule> activation) {
  nn::Sequential s(nn::Conv2d(in, out, o.kernel,
                              {.stride = {o.stride},
                               .padding = {(o.kernel - 1) / 2 * o.dilation},
                               .dilation = {o.dilation},
                               .groups = o.groups,
                               .bias = false}),
                   nn::BatchNorm2d(out, o.norm));
  if (activation) s.append(std::move(*activation));
  return s;
}

SqueezeExcitation::SqueezeExcitation(int64_t channels, int64_t squeeze, bool smooth)
    : fc1(channels, squeeze, 1), fc2(squeeze, channels, 1), smooth(smooth) {
  TD_REGISTER(fc1, fc2);
}
Tensor SqueezeExcitation::forward(Tensor x) {
  Tensor s = fc1(adaptive_avg_pool2d(x, 1));
  s = fc2(smooth ? silu(std::move(s)) : relu(std::move(s)));
  return x * (smooth ? sigmoid(std::move(s)) : hardsigmoid(std::move(s)));
}

int64_t make_divisible(double v, int64_t divisor) {
  const auto rounded = static_cast<int64_t>(v + static_cast<double>(divisor) / 2);
  const int64_t n = std::max(divisor, rounded / divisor * divisor);
  return static_cast<double>(n) < 0.9 * v ? n + divisor : n;
}

void init_weights(nn::Module& m, WeightInit conv, WeightInit linear) {
  auto layer_of = [](const std::string& path) { return path.substr(0, path.rfind('.') + 1); };
  std::map<std::string, WeightInit> rules;
  for (auto& [path, p] : m.named_parameters()) {
    const size_t rank = p.shape().size();
    const WeightInit rule = rank == 4 ? conv : rank == 2 ? linear : nullptr;
    if (!path.ends_with("weight") || !rule) continue;
    rules[layer_of(path)] = rule;
    p.assign_(rule(p.shape()));
  }
  for (auto& [path, p] : m.named_parameters())
    if (path.ends_with("bias") && rules.count(layer_of(path))) p.assign_(zeros(p.shape()));
}

Tensor kaiming_fan_out(const Shape& shape) {
  return nn::init::kaiming_normal(shape, 0, DType::f32,
                                  {.mode = "fan_out", .nonlinearity = "relu"});
}
Tensor kaiming_fan_in(const Shape& shape) {
  return nn::init::kaiming_normal(shape, 0, DType::f32, {.mode = "fan_in", .nonlinearity = "relu"});
}
Tensor normal_001(const Shape& shape) { return nn::init::normal(shape, 0, 0.01); }

}  // namespace tandem::models
