// SPDX-License-Identifier: Apache-2.0
// ONNX convolutions: asymmetric and automatic pads, transposed, integer, deformable.
#include <algorithm>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/activation_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {
std::vector<int64_t> sizes_or(const OnnxCall& c, const char* name, size_t n, int64_t otherwise) {
  std::vector<int64_t> v = c.attr_ints(name);
  if (v.empty()) v.assign(n, otherwise);
  TD_CHECK(v.size() == n, Shape, "its attribute '{}' has {} entries, expected {}", name, v.size(),
           n);
  check_onnx_list(v);
  return v;
}

void check_kernel(const OnnxCall& c, const std::vector<int64_t>& kernel) {
  TD_CHECK(!c.attribute("kernel_shape") || c.attr_ints("kernel_shape") == kernel, Shape,
           "its kernel_shape is {}, its weight's is {}",
           Shape(c.attr_ints("kernel_shape")).to_string(), Shape(kernel).to_string());
}

std::string auto_pad_of(const OnnxCall& c) {
  return c.attr_choice("auto_pad", "NOTSET", {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"});
}
}  // namespace

Tensor onnx_channels_first(const Tensor& x) {
  TD_CHECK(x.dim() >= 3, Shape, "expected [n, ..., c], got {}", x.shape().to_string());
  return movedim(x, {-1}, {1});
}
Tensor onnx_channels_last(const Tensor& x) { return contiguous(movedim(x, {1}, {-1})); }

OnnxWindow onnx_window(const OnnxCall& c, const Tensor& x, std::vector<int64_t> kernel) {
  TD_CHECK(x.dim() >= 3, Shape, "expected [n, c, ...], got {}", x.shape().to_string());
  OnnxWindow w;
  const auto n = static_cast<size_t>(x.dim() - 2);
  w.kernel = kernel.empty() ? sizes_or(c, "kernel_shape", n, 1) : std::move(kernel);
  check_kernel(c, w.kernel);
  TD_CHECK(w.kernel.size() == n, Shape, "a kernel of {} dimensions does not fit {}",
           w.kernel.size(), x.shape().to_string());
  check_onnx_list(w.kernel);
  w.stride = sizes_or(c, "strides", n, 1);
  w.dilation = sizes_or(c, "dilations", n, 1);
  const std::vector<int64_t> pads = sizes_or(c, "pads", 2 * n, 0);
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.after.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  const std::string automatic = auto_pad_of(c);
  const bool ceil = c.attr("ceil_mode", 0);
  for (size_t d = 0; d < n; ++d) {
    const int64_t size = x.size(static_cast<int64_t>(d) + 2), span = w.extent(d), s = w.stride[d];
    TD_CHECK(s > 0 && w.kernel[d] > 0 && w.dilation[d] > 0, Value,
             "kernel, strides and dilations must be positive");
    check_onnx_list({size});
    w.in.push_back(size);
    if (automatic == "VALID") w.before[d] = w.after[d] = 0;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t out = (size + s - 1) / s;
      const int64_t all = std::max<int64_t>(0, (out - 1) * s + span - size);
      w.before[d] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      w.after[d] = all - w.before[d];
    }
    const int64_t room = size + w.before[d] + w.after[d] - span;
    TD_CHECK(room >= 0, Shape, "a window of {} does not fit a dimension of {}", span,
             size + w.before[d] + w.after[d]);
    int64_t out = room / s + 1;
    if (ceil && room % s != 0 && out * s < size + w.before[d]) ++out;
    w.out.push_back(out);
  }
  return w;
}

ConvAttrs onnx_conv_attrs(const OnnxWindow& window, int64_t groups) {
  ConvAttrs a;
  a.stride = window.list(&OnnxWindow::stride);
  a.dilation = window.list(&OnnxWindow::dilation);
  a.padding = window.list(&OnnxWindow::before);
  a.padding_end = window.list(&OnnxWindow::after);
  a.groups = groups;
  return a;
}

Tensor onnx_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const OnnxWindow& window,
                 int64_t groups) {
  return conv(x, w, bias, onnx_conv_attrs(window, groups));
}

namespace {

std::vector<int64_t> kernel_of(const Tensor& w) {
  const std::vector<int64_t> s = w.shape().to_vector();
  TD_CHECK(s.size() >= 3, Shape, "expected a weight [o, c, ...], got {}", w.shape().to_string());
  return {s.begin() + 2, s.end()};
}

void conv_of(OnnxCall& c) {
  const Tensor x = c.x(0), w = c.x(1);
  c.set(0, onnx_conv(x, w, c.x_or_none(2), onnx_window(c, x, kernel_of(w)), c.attr("group", 1)),
        c.type(0));
}

// Conv, plus a tensor of the result's shape, then an activation.
void conv_with(OnnxCall& c, bool channels_last) {
  const Tensor x = channels_last ? onnx_channels_first(c.x(0)) : c.x(0), w = c.x(1);
  Tensor y = onnx_conv(x, w, c.x_or_none(2), onnx_window(c, x, kernel_of(w)), c.attr("group", 1));
  if (channels_last) y = onnx_channels_last(y);
  if (c.has(3)) y = y + c.x(3);
  OnnxActivation a = onnx_activation(c.attr_text("activation"));
  const std::vector<float> numbers = c.attr_floats("activation_params");
  if (!numbers.empty()) a.alpha = numbers[0];
  if (numbers.size() > 1) a.beta = numbers[1];
  c.set_like(0, a.name.empty() ? y : onnx_activate(a, y));
}
void fused_conv(OnnxCall& c) { conv_with(c, false); }
void channels_last_conv(OnnxCall& c) { conv_with(c, true); }

/// Pads and result size of a transposed convolution.
void transposed_window(const OnnxCall& c, OnnxWindow& w) {
  const size_t n = w.dims();
  const std::vector<int64_t> more = sizes_or(c, "output_padding", n, 0);
  std::vector<int64_t> wanted = c.attr_ints("output_shape");
  const std::string automatic = auto_pad_of(c);
  const bool same = automatic.rfind("SAME", 0) == 0;
  check_onnx_list(wanted);
  check_onnx_list(w.kernel);
  check_onnx_list(w.in);
  if (wanted.size() > n) wanted.erase(wanted.begin(), wanted.end() - static_cast<int64_t>(n));
  for (size_t d = 0; d < n; ++d) {
    const int64_t whole = w.stride[d] * (w.in[d] - 1) + w.extent(d) + more[d];
    if (!wanted.empty() || same) {
      w.out[d] = wanted.empty() ? w.in[d] * w.stride[d] : wanted[d];
      const int64_t all = std::max<int64_t>(0, whole - w.out[d]);
      w.before[d] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      w.after[d] = all - w.before[d];
    } else {
      if (automatic == "VALID") w.before[d] = w.after[d] = 0;
      w.out[d] = whole - w.before[d] - w.after[d];
    }
    TD_CHECK(w.out[d] > 0, Shape, "the result would have the size {}", w.out[d]);
  }
}

void conv_transpose(OnnxCall& c) {
  const Tensor x = c.x(0), weight = c.x(1);
  TD_CHECK(x.dim() >= 3 && weight.dim() == x.dim(), Shape, "expected [n, c, ...] and [c, o, ...]");
  OnnxWindow w;
  const auto n = static_cast<size_t>(x.dim() - 2);
  w.kernel = kernel_of(weight);
  check_kernel(c, w.kernel);
  w.stride = sizes_or(c, "strides", n, 1);
  w.dilation = sizes_or(c, "dilations", n, 1);
  const std::vector<int64_t> pads = sizes_or(c, "pads", 2 * n, 0);
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.after.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  for (size_t d = 0; d < n; ++d) w.in.push_back(x.size(static_cast<int64_t>(d) + 2));
  w.out.assign(n, 0);
  transposed_window(c, w);
  // The gradient of a convolution without pads, cropped or zero-padded to the result's size.
  ConvAttrs a;
  a.stride = w.list(&OnnxWindow::stride);
  a.dilation = w.list(&OnnxWindow::dilation);
  a.groups = c.attr("group", 1);
  PadAttrs cut;
  cut.before = cut.after = IntList{0, 0};
  cut.value = 0.0;
  bool cuts = false;
  for (size_t d = 0; d < n; ++d) {
    const int64_t full = w.stride[d] * (w.in[d] - 1) + w.extent(d);
    a.size.push_back(full);
    a.padding.push_back(0);
    a.padding_end.push_back(0);
    cut.before.push_back(-w.before[d]);
    cut.after.push_back(w.out[d] - (full - w.before[d]));
    cuts = cuts || w.before[d] != 0 || w.out[d] != full;
  }
  Tensor y = conv_backward_input(x, weight, a);
  if (cuts) y = call(op::pad, &cut, SourceLocation::here(), std::move(y));
  if (c.has(2)) {
    Shape s(1, -1);
    for (size_t d = 0; d < n; ++d) s.push_back(1);
    y = y + c.x(2).reshape(s);
  }
  c.set(0, y, c.type(0));
}

// The zero point of a weight may be one per output channel.
void conv_of_bytes(OnnxCall& c) { c.set(0, onnx_integer_conv(c, 0, 2, 1, 3).to(DType::i32)); }

// Each kernel position is one sampling of the input at the positions given by the offsets.
void deform_conv(OnnxCall& c) {
  // In f64: positions on whole pixels must stay exact.
  const Tensor x = c.x(0).to(DType::f64), w = c.x(1).to(DType::f64), offset = c.x(2).to(DType::f64);
  const OnnxWindow k = onnx_window(c, x, kernel_of(w));
  TD_CHECK(k.dims() == 2, Unsupported, "deformable convolution expects images");
  const int64_t n = x.size(0), channels = x.size(1), groups = c.attr("group", 1),
                og = c.attr("offset_group", 1), kh = k.kernel[0], kw = k.kernel[1], oh = k.out[0],
                ow = k.out[1];
  TD_CHECK(og > 0 && channels % og == 0, Shape, "{} channels in {} groups of offsets", channels,
           og);
  const Tensor off = offset.reshape({n, og, kh * kw, 2, oh, ow});
  const Tensor mask = c.has(4) ? c.x(4).to(DType::f64).reshape({n, og, kh * kw, oh, ow}) : Tensor();
  const Tensor images = x.reshape({n * og, channels / og, k.in[0], k.in[1]});
  std::vector<Tensor> columns;
  for (int64_t p = 0; p < kh * kw; ++p) {
    const int64_t i = p / kw, j = p % kw;
    const Tensor rows =
        arange(0, oh, 1, x.dtype()).reshape({oh, 1}) * static_cast<double>(k.stride[0]) +
        static_cast<double>(i * k.dilation[0] - k.before[0]);
    const Tensor cols = arange(0, ow, 1, x.dtype()) * static_cast<double>(k.stride[1]) +
                        static_cast<double>(j * k.dilation[1] - k.before[1]);
    const Tensor y = off.select(2, p).select(2, 0).reshape({n * og, oh, ow}) + rows;
    const Tensor z = off.select(2, p).select(2, 1).reshape({n * og, oh, ow}) + cols;
    // From pixels to -1..1, the edges of the image.
    const Tensor grid = stack({(z * 2.0 + 1.0) / static_cast<double>(k.in[1]) - 1.0,
                               (y * 2.0 + 1.0) / static_cast<double>(k.in[0]) - 1.0},
                              -1);
    Tensor sample = grid_sample(images, grid, "bilinear", "zeros", false);
    if (mask.defined()) sample = sample * mask.select(2, p).reshape({n * og, 1, oh, ow});
    columns.push_back(sample.reshape({n, groups, channels / groups, oh * ow}));
  }
  const int64_t out = w.size(0);
  // [n, groups, c, k, places] times [groups, o, c * k]
  const Tensor all = stack(columns, 3).reshape({n, groups, channels / groups * kh * kw, oh * ow});
  Tensor y = matmul(w.reshape({groups, out / groups, channels / groups * kh * kw}), all)
                 .reshape({n, out, oh, ow});
  if (c.has(3)) y = y + c.x(3).reshape({1, out, 1, 1});
  c.set_like(0, y);
}

}  // namespace

std::span<const OnnxRow> onnx_conv_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "Conv",
       1,
       0,
       conv_of,
       {3, 1, "auto_pad dilations group kernel_shape pads strides"},
       &op::conv,
       export_conv},
      {kOnnxMicrosoft,
       "FusedConv",
       1,
       0,
       fused_conv,
       {4, 1, "activation activation_params auto_pad dilations group kernel_shape pads strides"}},
      {kOnnxMicrosoft,
       "NhwcConv",
       1,
       0,
       channels_last_conv,
       {3, 1, "auto_pad dilations group kernel_shape pads strides"}},
      {kOnnxMicrosoft,
       "NhwcFusedConv",
       1,
       0,
       channels_last_conv,
       {4, 1, "activation activation_params auto_pad dilations group kernel_shape pads strides"}},
      {"",
       "ConvTranspose",
       1,
       0,
       conv_transpose,
       {3, 1, "auto_pad dilations group kernel_shape output_padding output_shape pads strides"},
       &op::conv_backward_input,
       export_conv_backward_input},
      {"",
       "ConvInteger",
       10,
       0,
       conv_of_bytes,
       {4, 1, "auto_pad dilations group kernel_shape pads strides"}},
      {"",
       "DeformConv",
       19,
       0,
       deform_conv,
       {5, 1, "dilations group kernel_shape offset_group pads strides"}},
      exported(op::conv_backward_weight, export_conv_backward_weight),
      exported(op::im2col, export_im2col),
  };
  return kRows;
}

}  // namespace tandem::onnx
