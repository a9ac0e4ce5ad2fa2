// SPDX-License-Identifier: Apache-2.0
// ONNX pools. The input is padded first, so that windows fit exactly for any pads and rounding of
// the model; then our pools run without padding.
#include <algorithm>
#include <limits>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// x padded with `value`, so that exactly out windows fit.
Tensor padded(const Tensor& x, const OnnxWindow& w, double value) {
  PadAttrs a;
  a.before = a.after = IntList{0, 0};
  a.value = value;
  bool any = false;
  for (size_t d = 0; d < w.dims(); ++d) {
    const int64_t end = (w.out[d] - 1) * w.stride[d] + w.extent(d) - w.in[d] - w.before[d];
    a.before.push_back(w.before[d]);
    a.after.push_back(end);
    any |= w.before[d] != 0 || end != 0;
  }
  return any ? call(op::pad, &a, SourceLocation::here(), x) : x;
}

PoolAttrs pool_attrs(const OnnxWindow& w) {
  PoolAttrs a;
  a.kernel = w.list(&OnnxWindow::kernel);
  a.stride = w.list(&OnnxWindow::stride);
  a.dilation = w.list(&OnnxWindow::dilation);
  a.padding = IntList(std::vector<int64_t>(w.dims(), 0));
  return a;
}

/// Whether max pooling with symmetric padding gives the same windows. Padding never wins.
bool pads_evenly(const OnnxWindow& w) {
  for (size_t d = 0; d < w.dims(); ++d) {
    if (2 * w.before[d] > w.kernel[d] || w.dilation[d] != 1) return false;
    if ((w.in[d] + 2 * w.before[d] - w.extent(d)) / w.stride[d] + 1 != w.out[d]) return false;
  }
  return w.dims() <= 3;
}

/// Every window of padded x [n, c, ...]: [n, c, ...out, k].
Tensor windows(const Tensor& x, const OnnxWindow& w) {
  Tensor y = x;
  const auto n = static_cast<int64_t>(w.dims());
  for (int64_t d = 0; d < n; ++d) {
    const auto i = static_cast<size_t>(d);
    std::vector<int64_t> at;
    check_onnx_loop(static_cast<double>(w.out[i]) * static_cast<double>(w.kernel[i]),
                    2 * sizeof(int64_t));
    for (int64_t o = 0; o < w.out[i]; ++o)
      for (int64_t k = 0; k < w.kernel[i]; ++k) at.push_back(o * w.stride[i] + k * w.dilation[i]);
    y = index_select(y, 2 + d, tensor(at));
  }
  Shape split(x.shape(0), x.shape(1));
  std::vector<int64_t> order{0, 1};
  for (size_t i = 0; i < w.dims(); ++i) {
    split.push_back(w.out[i]);
    split.push_back(w.kernel[i]);
    order.push_back(2 + 2 * static_cast<int64_t>(i));
  }
  for (int64_t i = 0; i < n; ++i) order.push_back(3 + 2 * i);
  Shape s(x.shape(0), x.shape(1));
  for (size_t i = 0; i < w.dims(); ++i) s.push_back(w.out[i]);
  s.push_back(-1);
  return y.reshape(split).permute(IntList(order)).reshape(s);
}

void max_pool_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const OnnxWindow w = onnx_window(c, x, {});
  const Tensor f = is_floating(x.dtype()) ? x : x.to(DType::f32);
  if (!c.wants(1) && pads_evenly(w)) {
    PoolAttrs a = pool_attrs(w);
    a.padding = w.list(&OnnxWindow::before);
    c.set(0, call(op::max_pool, &a, SourceLocation::here(), f).to(x.dtype()), c.type(0));
    return;
  }
  const Tensor p = padded(f, w, -std::numeric_limits<double>::infinity());
  const PoolAttrs a = pool_attrs(w);
  if (w.dims() > 3) {
    c.set(0, amax(windows(p, w), {-1}).to(x.dtype()), c.type(0));
    return;
  }
  if (!c.wants(1)) {
    c.set(0, call(op::max_pool, &a, SourceLocation::here(), p).to(x.dtype()), c.type(0));
    return;
  }
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(p)};
  apply(op::max_pool_with_indices, &a, in, out, SourceLocation::here());
  c.set(0, out[0].to(x.dtype()), c.type(0));
  // From positions in the padded plane to positions in the whole of x.
  Tensor at = out[1].to(DType::i64), place = zeros({1}, DType::i64);
  const bool columns = c.attr("storage_order", 0);
  std::vector<Tensor> coordinates(w.dims());
  for (size_t d = w.dims(); d-- > 0;) {
    const int64_t size = p.size(static_cast<int64_t>(d) + 2);
    coordinates[d] = remainder(at, size) - w.before[d];
    at = floor_divide(at, size);
  }
  int64_t plane = 1;
  for (size_t i = 0; i < w.dims(); ++i) {
    const size_t d = columns ? w.dims() - 1 - i : i;
    place = place * w.in[d] + coordinates[d];
    plane *= w.in[d];
  }
  Shape s(x.shape(0), x.shape(1));
  for (size_t d = 0; d < w.dims(); ++d) s.push_back(1);
  const Tensor planes = arange(0, x.size(0) * x.size(1), 1, DType::i64).reshape(s) * plane;
  c.set(1, place + planes);
}

}  // namespace

Tensor onnx_average_pool(const OnnxCall& c, const Tensor& x) {
  const OnnxWindow w = onnx_window(c, x, {});
  const bool with_pads = c.attr("count_include_pad", 0);
  const Tensor p = padded(x, w, 0.0);
  bool plain = w.dims() <= 3;
  double area = 1;
  for (size_t d = 0; d < w.dims(); ++d) {
    plain = plain && w.dilation[d] == 1;
    area *= static_cast<double>(w.kernel[d]);
  }
  const PoolAttrs a = pool_attrs(w);
  Tensor y = plain ? call(op::avg_pool, &a, SourceLocation::here(), p) : mean(windows(p, w), {-1});
  // Number of elements that count in each window, dimension by dimension.
  Tensor count = full(Shape(), 1.0, DType::f64);
  bool all = true;
  for (size_t d = 0; d < w.dims(); ++d) {
    std::vector<double> n;
    check_onnx_loop(static_cast<double>(w.out[d]) * static_cast<double>(w.kernel[d]),
                    2 * sizeof(double));
    for (int64_t o = 0; o < w.out[d]; ++o) {
      int64_t inside = 0;
      for (int64_t k = 0; k < w.kernel[d]; ++k) {
        const int64_t at = o * w.stride[d] + k * w.dilation[d] - w.before[d];
        inside += with_pads ? at < w.in[d] + w.after[d] : at >= 0 && at < w.in[d];
      }
      all = all && inside == w.kernel[d];
      n.push_back(static_cast<double>(inside));
    }
    Shape s;
    for (size_t e = 0; e < w.dims(); ++e) s.push_back(e == d ? w.out[d] : 1);
    count = count * tensor(n).reshape(s);
  }
  return all ? y : y * (area / count).to(x.dtype());
}

namespace {

void average_pool(OnnxCall& c) { c.set_like(0, onnx_average_pool(c, c.x(0))); }

void nhwc_max_pool(OnnxCall& c) {
  c.in[0] = OnnxValue(onnx_channels_first(c.x(0)), c.type(0));
  max_pool_of(c);
  c.set(0, onnx_channels_last(c.out[0].tensor()), c.type(0));
}

void lp_pool(OnnxCall& c) {
  const Tensor x = c.x(0);
  const OnnxWindow w = onnx_window(c, x, {});
  const double p = c.version() < 2 ? c.attr_float("p", 2) : static_cast<double>(c.attr("p", 2));
  c.set_like(0, pow(sum(pow(abs(windows(padded(x, w, 0.0), w)), p), {-1}), 1 / p));
}

IntList spatial(const Tensor& x) {
  TD_CHECK(x.dim() >= 3, Shape, "expected [n, c, ...], got {}", x.shape().to_string());
  IntList d;
  for (int i = 2; i < x.dim(); ++i) d.push_back(i);
  return d;
}
void global_average(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, mean(x, spatial(x), true), c.type(0));
}
void global_max(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, amax(x, spatial(x), true), c.type(0));
}
void global_lp(OnnxCall& c) {
  const Tensor x = c.x(0);
  const double p = c.version() < 2 ? c.attr_float("p", 2) : static_cast<double>(c.attr("p", 2));
  c.set_like(0, pow(sum(pow(abs(x), p), spatial(x), true), 1 / p));
}

// Indices are positions in the whole tensor that was pooled; a larger output_shape gets it in its
// first corner.
void max_unpool(OnnxCall& c) {
  const Tensor x = c.x(0);
  const std::vector<int64_t> kernel = c.attr_ints("kernel_shape");
  const size_t n = kernel.size();
  TD_CHECK(static_cast<int>(n) + 2 == x.dim(), Shape, "a kernel of {} dimensions does not fit {}",
           n, x.shape().to_string());
  std::vector<int64_t> strides = c.attr_ints("strides", std::vector<int64_t>(n, 1));
  std::vector<int64_t> pads = c.attr_ints("pads", std::vector<int64_t>(2 * n, 0));
  TD_CHECK(strides.size() == n && pads.size() == 2 * n, Shape, "expected {} strides and {} pads", n,
           2 * n);
  check_onnx_list(kernel);
  check_onnx_list(strides);
  check_onnx_list(pads);
  Shape s(x.shape(0), x.shape(1));
  for (size_t d = 0; d < n; ++d)
    s.push_back((x.size(static_cast<int64_t>(d) + 2) - 1) * strides[d] + kernel[d] - pads[d] -
                pads[n + d]);
  check_onnx_size(s);
  const Tensor flat = zeros(s, x.dtype()).reshape({-1});
  Tensor y = scatter(flat, 0, c.x(1).reshape({-1}), x.reshape({-1})).reshape(s);
  if (c.has(2)) {
    const std::vector<int64_t> wanted = c.ints(2);
    const Shape whole = onnx_shape(wanted);
    TD_CHECK(static_cast<int>(wanted.size()) == x.dim(), Shape, "expected {} sizes", x.dim());
    PadAttrs a;
    a.value = 0.0;
    for (int d = 0; d < x.dim(); ++d) {
      a.before.push_back(0);
      a.after.push_back(whole[d] - y.shape(d));
    }
    y = call(op::pad, &a, SourceLocation::here(), y);
  }
  c.set(0, y, c.type(0));
}

}  // namespace

std::span<const OnnxRow> onnx_pool_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "MaxPool",
       1,
       0,
       max_pool_of,
       {1, 2, "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"},
       &op::max_pool,
       export_max_pool},
      {kOnnxMicrosoft,
       "NhwcMaxPool",
       1,
       0,
       nhwc_max_pool,
       {1, 1, "auto_pad ceil_mode dilations kernel_shape pads strides"}},
      {"",
       "AveragePool",
       1,
       0,
       average_pool,
       {1, 1, "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"},
       &op::avg_pool,
       export_avg_pool},
      {"",
       "LpPool",
       1,
       0,
       lp_pool,
       {1, 1, "auto_pad ceil_mode dilations kernel_shape p pads strides"}},
      {"", "GlobalAveragePool", 1, 0, global_average, {1, 1, ""}},
      {"", "GlobalMaxPool", 1, 0, global_max, {1, 1, ""}},
      {"", "GlobalLpPool", 1, 0, global_lp, {1, 1, "p"}},
      {"", "MaxUnpool", 9, 0, max_unpool, {3, 1, "kernel_shape pads strides"}},
      exported(op::max_pool_with_indices, export_max_pool),
      exported(op::max_pool_backward, export_max_pool_backward),
      exported(op::avg_pool_backward, export_avg_pool_backward),
  };
  return kRows;
}

}  // namespace tandem::onnx
