// SPDX-License-Identifier: Apache-2.0
// ONNX activations with attributes, and the three forms of softmax.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void leaky(OnnxCall& c) { c.set(0, leaky_relu(c.x(0), c.attr_float("alpha", 0.01))); }
void elu_of(OnnxCall& c) { c.set(0, elu(c.x(0), c.attr_float("alpha", 1.0))); }
void celu_of(OnnxCall& c) { c.set(0, celu(c.x(0), c.attr_float("alpha", 1.0))); }
void selu_of(OnnxCall& c) {
  const double alpha = c.attr_float("alpha", 1.67326319217681884765625);
  const double gamma = c.attr_float("gamma", 1.05070102214813232421875);
  const Tensor x = c.x(0);
  c.set_like(0, gamma * where(x > 0, x, alpha * expm1(x)));
}
void hard_sigmoid(OnnxCall& c) {
  const double alpha = c.attr_float("alpha", 0.2), beta = c.attr_float("beta", 0.5);
  c.set_like(0, clamp(c.x(0) * alpha + beta, 0, 1));
}
void hard_swish(OnnxCall& c) { c.set(0, hardswish(c.x(0))); }
void softplus_of(OnnxCall& c) { c.set(0, logaddexp(c.x(0), 0.0)); }
void mish_of(OnnxCall& c) { c.set(0, mish(c.x(0))); }
void gelu_of(OnnxCall& c) {
  c.set(0, gelu(c.x(0), c.attr_choice("approximate", "none", {"none", "tanh"})));
}
void swish(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, x * sigmoid(x * c.attr_float("alpha", 1.0)));
}
void swiglu_of(OnnxCall& c) {
  const Tensor gate = c.x(0), value = c.x(1);
  TD_CHECK(gate.shape() == value.shape(), Shape, "wants two inputs of one shape, got {} and {}",
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

void softmax_of(OnnxCall& c) {
  along(c, [](const Tensor& x, int64_t d) { return softmax(x, d); });
}
void log_softmax_of(OnnxCall& c) {
  along(c, [](const Tensor& x, int64_t d) { return log_softmax(x, d); });
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
