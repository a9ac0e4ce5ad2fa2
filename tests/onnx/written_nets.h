// SPDX-License-Identifier: Apache-2.0
// Networks and functions that the tests of the exports to TFLite and TensorFlow.js write.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::onnx {

inline Tensor tflite_pattern(const Shape& shape) {
  const int64_t n = shape.numel().value();
  return (remainder(arange(n) * 7, 11).to(DType::f32) * 0.25 - 1).reshape(shape);
}

/// Of images [n, 3, 17, 17]: plain, depthwise and dilated convolutions, a norm, pools, a matmul.
inline nn::Sequential written_image_net() {
  manual_seed(3);
  nn::Sequential net(
      nn::Conv2d(3, 8, 3, {.stride = 2, .padding = 1, .bias = false}), nn::BatchNorm2d(8),
      nn::ReLU(), nn::Conv2d(8, 8, 3, {.padding = 2, .dilation = 2, .groups = 8}), nn::Hardswish(),
      nn::MaxPool2d(3, {.stride = 2, .padding = 1}), nn::Conv2d(8, 6, 2, {.padding = 1}),
      nn::ReLU6(), nn::AvgPool2d(2, {.stride = 1}), nn::Flatten(), nn::Linear(150, 5));
  for (int k = 0; k < 3; ++k) net(randn({4, 3, 17, 17}));  // statistics of the norm
  net.eval();
  return net;
}

/// Calls check(f, x) for functions f of one tensor.
template <class Check>
void each_written_function(Check check) {
  const Tensor x = tflite_pattern({2, 4, 6, 6}), m = tflite_pattern({3, 5, 8});
  const Tensor line = tflite_pattern({8}), w = tflite_pattern({4, 3, 3, 3}) * 0.1,
               k = tflite_pattern({4, 4, 3, 3}) * 0.1;
  check([&](const Tensor& v) { return conv_transpose2d(v, constant(w), {}, {2}, {1}, {1}); }, x);
  check([&](const Tensor& v) { return softmax(conv2d(v, constant(k), {}, {1}, {1}), 1) * v; }, x);
  check(
      [&](const Tensor& v) {
        return cat({conv2d(v, constant(k), {}, {1}, {1}), v}, 1).mean({2, 3});
      },
      x);
  check([&](const Tensor& v) { return avg_pool2d(v, {3}, {2}, {1}, false, false); }, x);
  check([&](const Tensor& v) { return matmul(v, v.transpose(-1, -2)) + gelu(v).sum(-1, true); }, m);
  check([&](const Tensor& v) { return layer_norm(v, {8}, constant(line), constant(line)); }, m);
  check([&](const Tensor& v) { return pad(v, {1, 2}).slice(1, 1, 4).argmax(-1); }, m);
  check(
      [&](const Tensor& v) {
        return where(v > 0, log_softmax(v, 1), flip(v, {2})).reshape({15, 8});
      },
      m);
  check([&](const Tensor& v) { return erf(cumsum(v, 1)); }, m);
}

/// Layers between codes, of an image [1, 4, 6, 6].
inline Tensor written_code_net(const Tensor& in) {
  const auto codes = [](const Shape& shape) {
    return (remainder(arange(shape.numel().value()) * 37, 255) - 127).to(DType::i8).reshape(shape);
  };
  const Tensor w = codes({8, 4, 3, 3}), m = codes({5, 8});
  const Tensor bias8 = tflite_pattern({8}), bias5 = tflite_pattern({5});
  const Tensor by_channel = arange(1, 9).to(DType::f32) * 0.001;
  const auto number = [](auto v) { return constant(tensor(v)); };
  const auto rounded = [&](const Tensor& v, float scale, uint8_t zero) {
    const Tensor s = number(scale), z = constant(full(Shape(), zero, DType::u8));
    return dequantize_linear(quantize_linear(v, s, z), s, z);
  };
  const Tensor v = rounded(in, 0.02f, 60);
  const Tensor filter = dequantize_linear(constant(w), constant(by_channel), {}, 0);
  Tensor y = rounded(relu(conv2d(v, filter, constant(bias8), {1}, {1})), 0.01f, 0);
  y = rounded(y + y, 0.02f, 0);
  y = rounded(max_pool2d(y, {2}), 0.02f, 0);
  y = rounded(adaptive_avg_pool2d(y, {1, 1}), 0.015f, 3).reshape({1, 8});
  const Tensor matrix = dequantize_linear(constant(m), number(0.004f));
  return rounded(linear(rounded(y, 0.015f, 3), matrix, constant(bias5)), 0.05f, 128);
}

}  // namespace tandem::onnx
