// SPDX-License-Identifier: Apache-2.0
// Layers of quantised nets with random codes, as a QDQ file has them.
#pragma once

#include "tandem/ops/pointwise/quantize.h"
#include "tandem/tandem.h"

namespace tandem {

inline Tensor step(double v) { return full({}, v); }
// As a quantised file has it: a number, its code, and the number that the code stands for.
inline Tensor rounded(const Tensor& x, double scale, int zero) {
  const Tensor z = full({}, zero, DType::u8);
  return dequantize_linear(quantize_linear(x, step(scale), z), step(scale), z);
}

// A weight as codes with a scale for each output along `axis`, and a bias in steps of both.
struct CodeWeight {
  Buffer codes, scale, bias;
  int64_t axis;
  CodeWeight(const Shape& shape, int64_t axis, double x_scale)
      : codes((rand(shape) * 254 - 127).to(DType::i8)),
        scale(rand({shape[axis]}) * 0.02 + 0.002),
        bias((randn({shape[axis]}) * 300).to(DType::i32)),
        axis(axis),
        x_scale(x_scale) {}
  Tensor weight() const { return dequantize_linear(codes, scale, {}, axis); }
  Tensor column() const { return dequantize_linear(bias, Tensor(scale) * x_scale, {}, 0); }
  double x_scale;
};

inline ConvAttrs conv_attrs(int64_t stride, int64_t padding, int64_t groups) {
  return {.stride = {stride, stride},
          .padding = {padding, padding},
          .dilation = {1, 1},
          .groups = groups,
          .padding_end = {padding, padding}};
}

}  // namespace tandem
