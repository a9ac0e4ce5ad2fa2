// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions and pools: kernel, strides, dilations and pads from ONNX's attributes,
// with `auto_pad` resolved.
#pragma once

#include <vector>

#include "tandem/onnx/import/rows.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::onnx {

struct OnnxWindow {
  std::vector<int64_t> kernel, stride, dilation, before, after;
  std::vector<int64_t> in, out;  ///< spatial sizes of the input and the result
  size_t dims() const { return kernel.size(); }
  /// Number of elements that a window spans.
  int64_t extent(size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
  IntList list(const std::vector<int64_t> OnnxWindow::*m) const { return IntList(this->*m); }
};

/// The window over x [n, c, ...]; `kernel` is the weight's if there is one.
OnnxWindow onnx_window(const OnnxCall& c, const Tensor& x, std::vector<int64_t> kernel);
/// The attributes of a convolution by this window.
ConvAttrs onnx_conv_attrs(const OnnxWindow& window, int64_t groups);
/// Convolution of x with w by a window whose result has `w.out`.
Tensor onnx_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const OnnxWindow& window,
                 int64_t groups);

/// Average pooling of x [n, c, ...] by the node's attributes, in x's dtype.
Tensor onnx_average_pool(const OnnxCall& c, const Tensor& x);
/// [n, ..., c] as [n, c, ...], and back.
Tensor onnx_channels_first(const Tensor& x);
Tensor onnx_channels_last(const Tensor& x);

}  // namespace tandem::onnx
