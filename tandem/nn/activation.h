// SPDX-License-Identifier: Apache-2.0
// Layers without parameters: activations and Flatten. Each calls the function of the same name.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// X(layer, expression of x, what it is)
#define TD_FOR_EACH_ACTIVATION(X)                        \
  X(ReLU, relu(std::move(x)), "max(x, 0)")               \
  X(Sigmoid, sigmoid(std::move(x)), "1 / (1 + exp(-x))") \
  X(Tanh, tanh(std::move(x)), "tanh(x)")                 \
  X(SiLU, silu(std::move(x)), "x sigmoid(x)")            \
  X(Mish, mish(std::move(x)), "x tanh(softplus(x))")     \
  X(Hardswish, hardswish(std::move(x)), "x relu6(x + 3) / 6")

#define X(name, expression, text)     \
  /** text */                         \
  class TD_API name : public Module { \
   public:                            \
    name();                           \
    Tensor forward(Tensor x);         \
  };
TD_FOR_EACH_ACTIVATION(X)
#undef X

/// Gaussian error linear unit; approximate "none" (erf) or "tanh".
class TD_API GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none");
  Tensor forward(Tensor x);
  std::string approximate;
};
/// Softmax along dim.
class TD_API Softmax : public Module {
 public:
  explicit Softmax(int64_t dim);
  Tensor forward(Tensor x);
  int64_t dim;
};
/// Dimensions start_dim..end_dim as one.
class TD_API Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1);
  Tensor forward(Tensor x);
  int64_t start_dim, end_dim;
};

}  // namespace tandem::nn
