// SPDX-License-Identifier: Apache-2.0
// Layers without parameters: activations and Flatten. Each calls the function of the same name.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// X(layer, expression of x, description)
#define TD_FOR_EACH_ACTIVATION(X)                                                               \
  X(ReLU, relu(std::move(x)), "max(x, 0)")                                                      \
  X(ReLU6, relu6(std::move(x)), "clamp(x, 0, 6)")                                               \
  X(Sigmoid, sigmoid(std::move(x)), "1 / (1 + exp(-x))")                                        \
  X(LogSigmoid, logsigmoid(std::move(x)), "log(sigmoid(x))")                                    \
  X(Tanh, tanh(std::move(x)), "tanh(x)")                                                        \
  X(Tanhshrink, tanhshrink(std::move(x)), "x - tanh(x)")                                        \
  X(SiLU, silu(std::move(x)), "x sigmoid(x)")                                                   \
  X(Mish, mish(std::move(x)), "x tanh(softplus(x))")                                            \
  X(SELU, selu(std::move(x)), "self-normalising unit")                                          \
  X(Softsign, softsign(std::move(x)), "x / (1 + |x|)")                                          \
  X(Hardsigmoid, hardsigmoid(std::move(x)), "clamp(x / 6 + 0.5, 0, 1)")                         \
  X(Hardswish, hardswish(std::move(x)), "x relu6(x + 3) / 6")                                   \
  X(Softmax2d, softmax(std::move(x), -3), "softmax over channels of [n, c, h, w] or [c, h, w]") \
  X(Identity, x, "x itself")

/// X(layer, parameter, default, expression of x, description)
#define TD_FOR_EACH_ACTIVATION_1(X)                                                         \
  X(LeakyReLU, double, negative_slope, 0.01, leaky_relu(std::move(x), negative_slope),      \
    "x where positive, else slope times x")                                                 \
  X(ELU, double, alpha, 1.0, elu(std::move(x), alpha), "x or alpha (exp(x) - 1)")           \
  X(CELU, double, alpha, 1.0, celu(std::move(x), alpha), "x or alpha (exp(x / alpha) - 1)") \
  X(Hardshrink, double, lambd, 0.5, hardshrink(std::move(x), lambd), "0 in -lambd..lambd")  \
  X(Softshrink, double, lambd, 0.5, softshrink(std::move(x), lambd), "x shrunk by lambd")   \
  X(GLU, int64_t, dim, -1, glu(std::move(x), dim), "first half times sigmoid(second half)")

/// X(layer, parameter, default, parameter, default, expression of x, description)
#define TD_FOR_EACH_ACTIVATION_2(X)                                                  \
  X(Softplus, beta, 1.0, threshold, 20.0, softplus(std::move(x), beta, threshold),   \
    "log(1 + exp(beta x)) / beta")                                                   \
  X(Hardtanh, min_val, -1.0, max_val, 1.0, hardtanh(std::move(x), min_val, max_val), \
    "clamp(x, min_val, max_val)")

#define X(name, expression, text)     \
  /** text */                         \
  class TD_API name : public Module { \
   public:                            \
    name();                           \
    Tensor forward(Tensor x);         \
  };
TD_FOR_EACH_ACTIVATION(X)
#undef X
#define X(name, Type, p, value, expression, text) \
  /** text */                                     \
  class TD_API name : public Module {             \
   public:                                        \
    explicit name(Type p = value);                \
    Tensor forward(Tensor x);                     \
    Type p;                                       \
  };
TD_FOR_EACH_ACTIVATION_1(X)
#undef X
#define X(name, p, p_value, q, q_value, expression, text)  \
  /** text */                                              \
  class TD_API name : public Module {                      \
   public:                                                 \
    explicit name(double p = p_value, double q = q_value); \
    Tensor forward(Tensor x);                              \
    double p, q;                                           \
  };
TD_FOR_EACH_ACTIVATION_2(X)
#undef X

/// x where it exceeds the threshold, else value.
class TD_API Threshold : public Module {
 public:
  Threshold(double threshold, double value);
  Tensor forward(Tensor x);
  double threshold, value;
};
/// x where positive, else a learned slope times x: one, or one per channel (dimension 1).
class TD_API PReLU : public Module {
 public:
  explicit PReLU(Dim num_parameters = 1, double init = 0.25, DType dtype = DType::f32);
  Tensor forward(Tensor x);
  Param weight;
};
/// Leaky ReLU with a random slope, drawn from lower..upper in training; their mean otherwise.
class TD_API RReLU : public Module {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3);
  Tensor forward(Tensor x);
  double lower, upper;
};
/// silu(first half) times second half along dim (Shazeer 2020).
class TD_API SwiGLU : public Module {
 public:
  explicit SwiGLU(int64_t dim = -1);
  Tensor forward(Tensor x);
  int64_t dim;
};
/// Gaussian error linear unit; approximate "none" (erf) or "tanh".
class TD_API GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none");
  Tensor forward(Tensor x);
  std::string approximate;
};
/// Softmax, log-softmax and softmax of -x along dim.
class TD_API Softmax : public Module {
 public:
  explicit Softmax(int64_t dim);
  Tensor forward(Tensor x);
  int64_t dim;
};
class TD_API LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int64_t dim);
  Tensor forward(Tensor x);
  int64_t dim;
};
class TD_API Softmin : public Module {
 public:
  explicit Softmin(int64_t dim);
  Tensor forward(Tensor x);
  int64_t dim;
};
/// Merges dimensions start_dim..end_dim into one.
class TD_API Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1);
  Tensor forward(Tensor x);
  int64_t start_dim, end_dim;
};
/// Splits dimension dim into unflattened_size, which may contain one -1.
class TD_API Unflatten : public Module {
 public:
  Unflatten(int64_t dim, IntList unflattened_size);
  Tensor forward(Tensor x);
  int64_t dim;
  IntList unflattened_size;
};

}  // namespace tandem::nn
