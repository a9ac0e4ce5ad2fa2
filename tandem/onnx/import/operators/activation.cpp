// SPDX-License-Identifier: Apache-2.0
// ONNX activations with attributes, and the three forms of softmax.
#include <limits>

#include "tandem/base/ascii.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/activation_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

OnnxActivation onnx_activation(std::string name) {
  name = ascii_lower(name);
  OnnxActivation a{name};
  if (name == "affine" || name == "scaledtanh") a.alpha = a.beta = 1;
  if (name == "leakyrelu") a.alpha = 0.01;
  if (name == "thresholdedrelu" || name == "elu" || name == "celu") a.alpha = 1;
  if (name == "hardsigmoid") a = {name, 0.2, 0.5};
  if (name == "selu") a = {name, 1.67326319217681884765625, 0, 1.05070102214813232421875};
  if (name == "clip")
    a = {name, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()};
  return a;
}

Tensor onnx_activate(const OnnxActivation& a, const Tensor& x) {
  if (a.name == "tanh") return tanh(x);
  if (a.name == "sigmoid") return sigmoid(x);
  if (a.name == "relu") return relu(x);
  if (a.name == "affine") return x * a.alpha + a.beta;
  if (a.name == "leakyrelu") return leaky_relu(x, a.alpha);
  if (a.name == "thresholdedrelu") return where(x > a.alpha, x, 0).to(x.dtype());
  if (a.name == "scaledtanh") return tanh(x * a.beta) * a.alpha;
  if (a.name == "hardsigmoid") return clamp(x * a.alpha + a.beta, 0, 1);
  if (a.name == "elu") return elu(x, a.alpha);
  if (a.name == "celu") return celu(x, a.alpha);
  if (a.name == "selu") return a.gamma * where(x > 0, x, a.alpha * expm1(x));
  if (a.name == "softsign") return softsign(x);
  if (a.name == "softplus") return softplus(x);
  if (a.name == "hardswish") return hardswish(x);
  if (a.name == "gelu") return gelu(x);
  if (a.name == "silu" || a.name == "swish") return silu(x);
  if (a.name == "clip") return clamp(x, a.alpha, a.beta);
  TD_FAIL(Unsupported, "there is no activation '{}'", a.name);
}

namespace {

void leaky(OnnxCall& c) { c.set(0, leaky_relu(c.x(0), c.attr_float("alpha", 0.01))); }
void elu_of(OnnxCall& c) { c.set(0, elu(c.x(0), c.attr_float("alpha", 1.0))); }
void celu_of(OnnxCall& c) { c.set(0, celu(c.x(0), c.attr_float("alpha", 1.0))); }
void selu_of(OnnxCall& c) {
  OnnxActivation a = onnx_activation("Selu");
  a.alpha = c.attr_float("alpha", a.alpha);
  a.gamma = c.attr_float("gamma", a.gamma);
  c.set_like(0, onnx_activate(a, c.x(0)));
}
void hard_sigmoid(OnnxCall& c) {
  const double alpha = c.attr_float("alpha", 0.2), beta = c.attr_float("beta", 0.5);
  c.set_like(0, clamp(c.x(0) * alpha + beta, 0, 1));
}
void hard_swish(OnnxCall& c) { c.set(0, hardswish(c.x(0))); }
void softplus_of(OnnxCall& c) { c.set(0, logaddexp(c.x(0), 0.0)); }
void mish_of(OnnxCall& c) { c.set(0, mish(c.x(0))); }

// com.microsoft: with a bias that is added first.
void bias_gelu(OnnxCall& c) { c.set(0, gelu(c.x(0) + c.x(1))); }
void fast_gelu(OnnxCall& c) { c.set(0, gelu(c.has(1) ? c.x(0) + c.x(1) : c.x(0), "tanh")); }
void quick_gelu(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, x * sigmoid(x * c.attr_float("alpha", 1.702)));
}
void bias_split_gelu(OnnxCall& c) {
  const std::vector<Tensor> half = chunk(c.x(0) + c.x(1), 2, -1);
  TD_CHECK(half.size() == 2 && half[0].shape() == half[1].shape(), Shape,
           "expected an even last dimension, got {}", c.x(0).shape().to_string());
  c.set(0, half[0] * gelu(half[1]));
}

void gelu_of(OnnxCall& c) {
  c.set(0, gelu(c.x(0), c.attr_choice("approximate", "none", {"none", "tanh"})));
}
void swish(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, x * sigmoid(x * c.attr_float("alpha", 1.0)));
}
void swiglu_of(OnnxCall& c) {
  const Tensor gate = c.x(0), value = c.x(1);
  TD_CHECK(gate.shape() == value.shape(), Shape, "expected two inputs of one shape, got {} and {}",
           gate.shape().to_string(), value.shape().to_string());
  c.set_like(0, gate * sigmoid(gate * c.attr_float("alpha", 1.0)) * value);
}
void thresholded(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, where(x > c.attr_float("alpha", 1.0), x, 0));
}
void shrink(OnnxCall& c) {
  const double lambd = c.attr_float("lambd", 0.5), bias = c.attr_float("bias", 0.0);
  const Tensor x = c.x(0);
  c.set_like(0, where(x < -lambd, x + bias, where(x > lambd, x - bias, 0)));
}

void prelu_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  Tensor slope = c.x(1);
  if (c.version() < 7 && slope.dim() == 1 && slope.size(0) > 1 && x.dim() > 2) {  // per channel
    Shape s(slope.shape(0));
    for (int d = 2; d < x.dim(); ++d) s.push_back(1);
    slope = slope.reshape(s);
  }
  c.set_like(0, where(x < 0, x * slope, x));
}

/// Runs `f(x, dim)` along the axis; before opset 13 over all dimensions from the axis on.
template <class F>
void along(OnnxCall& c, F f) {
  const Tensor x = c.x(0);
  if (c.version() >= 13) {
    c.set(0,
          x.dim() == 0 ? f(x.reshape({1}), 0).reshape(Shape()) : f(x, c.axis("axis", -1, x.dim())));
    return;
  }
  const int axis = c.axis("axis", 1, x.dim());
  Dim rows = 1;
  for (int d = 0; d < axis; ++d) rows = rows * x.shape(d);
  c.set(0, f(x.reshape({rows, -1}), 1).reshape(x.shape()));
}

// Since opset 13 the standard defines Softmax and LogSoftmax by graphs of ops, each of which rounds
// to the type of x. In 16 bits that shows.
bool rounds_each_step(const OnnxCall& c, const Tensor& x) {
  return c.version() >= 13 && is_short_float(x.dtype());
}
void softmax_of(OnnxCall& c) {
  along(c, [&](const Tensor& x, int64_t d) {
    if (!rounds_each_step(c, x)) return softmax(x, d);
    const Tensor e = exp(x - amax(x, {d}, true));
    return e / sum(e, {d}, true);
  });
}
void log_softmax_of(OnnxCall& c) {
  along(c, [&](const Tensor& x, int64_t d) {
    if (!rounds_each_step(c, x)) return log_softmax(x, d);
    const Tensor y = x - amax(x, {d}, true);
    return y - log(sum(exp(y), {d}, true));
  });
}
void hardmax(OnnxCall& c) {
  along(c, [](const Tensor& x, int64_t d) {
    const Tensor best = argmax(x, d, true);
    Shape s;
    for (int i = 0; i < x.dim(); ++i) s.push_back(i == d ? x.shape(i) : Dim(1));
    return eq(best, arange_dim(x.shape(d)).reshape(s)).to(x.dtype());
  });
}

}  // namespace

std::span<const OnnxRow> onnx_activation_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "LeakyRelu", 1, 0, leaky, {1, 1, "alpha"}, &op::leaky_relu, export_leaky_relu},
      {"", "Elu", 1, 0, elu_of, {1, 1, "alpha"}, &op::elu, export_elu},
      {"", "Celu", 12, 0, celu_of, {1, 1, "alpha"}, &op::celu, export_celu},
      {"", "Selu", 1, 0, selu_of, {1, 1, "alpha gamma"}, &op::selu, export_selu},
      {"",
       "HardSigmoid",
       1,
       0,
       hard_sigmoid,
       {1, 1, "alpha beta"},
       &op::hardsigmoid,
       export_hardsigmoid},
      {"", "HardSwish", 14, 0, hard_swish, {1, 1, ""}, &op::hardswish, export_hardswish},
      {"", "Softplus", 1, 0, softplus_of, {1, 1, ""}, &op::softplus, export_softplus},
      {"", "Mish", 18, 0, mish_of, {1, 1, ""}, &op::mish, export_mish},
      {"", "Gelu", 20, 0, gelu_of, {1, 1, "approximate"}, &op::gelu, export_gelu},
      {kOnnxMicrosoft, "Gelu", 1, 0, gelu_of, {1, 1, ""}},
      {kOnnxMicrosoft, "BiasGelu", 1, 0, bias_gelu, {2, 1, ""}},
      {kOnnxMicrosoft, "FastGelu", 1, 0, fast_gelu, {2, 1, ""}},
      {kOnnxMicrosoft, "QuickGelu", 1, 0, quick_gelu, {1, 1, "alpha"}},
      {kOnnxMicrosoft, "BiasSplitGelu", 1, 0, bias_split_gelu, {2, 1, ""}},
      {"", "Swish", 24, 0, swish, {1, 1, "alpha"}},
      {"", "SwiGLU", 28, 0, swiglu_of, {2, 1, "alpha"}},
      settings_from(1, {"", "ThresholdedRelu", 10, 0, thresholded, {1, 1, "alpha"}}),
      {"", "Shrink", 9, 0, shrink, {1, 1, "bias lambd"}},
      {"", "PRelu", 1, 0, prelu_of, {2, 1, ""}},
      {"", "Softmax", 1, 0, softmax_of, {1, 1, "axis"}, &op::softmax, export_softmax},
      {"",
       "LogSoftmax",
       1,
       0,
       log_softmax_of,
       {1, 1, "axis"},
       &op::log_softmax,
       export_log_softmax},
      {"", "Hardmax", 1, 0, hardmax, {1, 1, "axis"}},
      exported(op::gelu_tanh, export_gelu_tanh),
      exported(op::relu6, export_relu6),
  };
  return kRows;
}

}  // namespace tandem::onnx
