// SPDX-License-Identifier: Apache-2.0
// MLP: linear layers with ReLU and dropout between them. Recipes use it for digits and tables.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

/// x [n, ...] is flattened to [n, sizes[0]]; the result is [n, sizes.back()].
struct MLP : nn::Module {
  explicit MLP(const std::vector<int64_t>& sizes, double dropout = 0) : drop(dropout) {
    TD_CHECK(sizes.size() >= 2, Value, "MLP expects at least two sizes, got {}", sizes.size());
    for (size_t i = 0; i + 1 < sizes.size(); ++i) layers.emplace_back(sizes[i], sizes[i + 1]);
    TD_REGISTER(layers, drop);
  }
  Tensor forward(Tensor x) {
    x = flatten(x, 1);
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      if (i + 1 < layers.size()) x = drop(relu(x));
    }
    return x;
  }
  std::vector<nn::Linear> layers;
  nn::Dropout drop;
};

}  // namespace tandem::models
