// SPDX-License-Identifier: Apache-2.0
// ONNX's layers as TFLite's operators: convolutions, pools, matrices, norms, resizing. Images go
// through them with channels last.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

TfliteShape last_shape(const TfliteShape& s) { return {s[0], s[2], s[3], s[1]}; }

/// A window over an image: what TFLite's SAME or VALID means, after `before` and `after` were
/// added.
struct WrittenWindow {
  std::vector<int64_t> kernel, stride, dilation, before{0, 0}, after{0, 0};
  bool same = false;
};

WrittenWindow window_of(const TfliteNode& n, std::vector<int64_t> kernel) {
  const TfliteShape &x = n.w.shape(n.in(0)), &y = n.w.shape(n.out());
  WrittenWindow w;
  w.kernel = std::move(kernel);
  w.stride = n.list("strides");
  w.dilation = n.list("dilations");
  if (w.stride.empty()) w.stride = {1, 1};
  if (w.dilation.empty()) w.dilation = {1, 1};
  const std::vector<int64_t> pads = n.list("pads");
  if (n.text("auto_pad", "NOTSET") != "NOTSET") n.w.lacks(n.n, "padding by a rule");
  bool same = true, none = true;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t in = x[d + 2], out = y[d + 2], extent = (w.kernel[d] - 1) * w.dilation[d] + 1;
    if (pads.size() == 4) {
      w.before[d] = pads[d];
      w.after[d] = pads[d + 2];
    }
    const int64_t wanted = (out - 1) * w.stride[d] + extent;  // rounded up: more at the end
    w.after[d] = std::max(w.after[d], wanted - in - w.before[d]);
    const int64_t all = std::max<int64_t>(0, wanted - in);
    same = same && out == (in + w.stride[d] - 1) / w.stride[d] && w.before[d] == all / 2 &&
           w.before[d] + w.after[d] >= all && w.after[d] <= std::max(all - all / 2, all / 2);
    none = none && w.before[d] == 0 && w.after[d] == 0;
  }
  w.same = same && !none;
  if (w.same) w.before = w.after = {0, 0};
  return w;
}

/// x [n, h, w, c] with what the window adds; codes keep their scales.
int padded(const TfliteNode& n, int x, const WrittenWindow& w, float value) {
  if (w.before[0] + w.before[1] + w.after[0] + w.after[1] == 0) return x;
  TfliteShape s = n.w.shape_of(x);
  std::vector<int64_t> pads(8);
  for (size_t d = 0; d < 2; ++d) {
    pads[2 * d + 2] = w.before[d];
    pads[2 * d + 3] = w.after[d];
    s[d + 1] += w.before[d] + w.after[d];
  }
  const int sizes = n.w.constant(tandem::tensor(pads, {4, 2}).to(DType::i32));
  const bool codes = !n.w.scales(x).scale.empty();
  const OnnxType type = codes ? OnnxType::i8 : OnnxType::f32;
  int t = -1;
  if (codes) {
    const int zero = n.w.constant(full(Shape(), value, DType::i8));
    n.w.scaled(zero, n.w.scales(x));
    t = n.w.op(60, {x, sizes, zero}, s, type, {43, {}, -1, 2});
    n.w.scaled(t, n.w.scales(x));
  } else if (value == 0) {
    t = n.w.op(34, {x, sizes}, s, type, {22});
  } else {
    t = n.w.op(60, {x, sizes, n.w.constant(full(Shape(), value, DType::f32))}, s, type, {43});
  }
  return t;
}

TfliteOptions windowed(uint8_t kind, const WrittenWindow& w) {
  TfliteOptions o{kind};
  o.fields.add<int8_t>(0, w.same ? 0 : 1);
  o.fields.add<int32_t>(1, static_cast<int32_t>(w.stride[1]));
  o.fields.add<int32_t>(2, static_cast<int32_t>(w.stride[0]));
  return o;
}

int bias_of(const TfliteNode& n, size_t i, int64_t channels) {
  return n.has(i) ? n.w.plain(n.in(i)) : n.w.constant(zeros(Shape(channels), DType::f32));
}

/// What a batch norm with known statistics multiplies with and adds.
struct ChannelLine {
  Tensor factor, offset;
};
std::optional<ChannelLine> line_of(TfliteWriter& w, const OnnxNode& norm) {
  std::vector<Tensor> v;
  for (size_t i = 1; i < 5; ++i) {
    if (norm.inputs.size() <= i || !w.is_known(norm.inputs[i])) return {};
    v.push_back(w.tensor(norm.inputs[i]));
  }
  const TfliteNode n{w, norm};
  const Tensor factor = v[0] / sqrt(v[3] + n.number("epsilon", 1e-5f));
  return ChannelLine{factor, v[1] - v[2] * factor};
}

}  // namespace

int tflite_conv_window(const TfliteNode& n, int x, std::vector<int64_t> kernel, bool depthwise,
                       int64_t multiplier, float value, TfliteOptions& options) {
  const WrittenWindow w = window_of(n, std::move(kernel));
  options = windowed(depthwise ? 2 : 1, w);
  if (depthwise) options.fields.add<int32_t>(3, static_cast<int32_t>(multiplier));
  options.activation = depthwise ? 4 : 3;
  options.fields.add<int32_t>(depthwise ? 5 : 4, static_cast<int32_t>(w.dilation[1]));
  options.fields.add<int32_t>(depthwise ? 6 : 5, static_cast<int32_t>(w.dilation[0]));
  options.version = depthwise && (w.dilation[0] > 1 || w.dilation[1] > 1) ? 2 : 1;
  return padded(n, x, w, value);
}

namespace {

void write_conv(TfliteNode& n) {
  if (n.w.shape(n.in(0)).size() != 4) n.w.lacks(n.n, "a convolution that is not one of images");
  if (!n.w.is_known(n.in(1))) n.w.lacks(n.n, "a computed weight");
  Tensor weight = n.w.tensor(n.in(1));
  const int64_t o = weight.size(0), group = n.attr("group", 1), c = n.w.shape(n.in(0))[1];
  int bias = -1;
  std::string result = n.out();
  // A batch norm after it is a factor and an offset of each channel.
  if (const OnnxNode* norm = n.w.only_reader(result); norm && norm->op == "BatchNormalization" &&
                                                      norm->inputs[0] == result &&
                                                      (!n.has(2) || n.w.is_known(n.in(2)))) {
    if (const auto line = line_of(n.w, *norm)) {
      weight = weight * line->factor.reshape({-1, 1, 1, 1});
      bias =
          n.w.constant(n.has(2) ? n.w.tensor(n.in(2)) * line->factor + line->offset : line->offset);
      result = norm->outputs[0];
      n.w.leave_out(norm);
    }
  }
  const bool depthwise = group == c && group > 1;
  const int filter = n.w.constant(
      contiguous(depthwise ? permute(weight, {1, 2, 3, 0}) : permute(weight, {0, 2, 3, 1})));
  TfliteOptions options;
  const int x = tflite_conv_window(n, n.w.last(n.in(0)), {weight.size(2), weight.size(3)},
                                   depthwise, o / c, 0, options);
  if (bias < 0) bias = bias_of(n, 2, o);
  n.w.set(result,
          n.w.op(depthwise ? 4 : 3, {x, filter, bias}, last_shape(n.w.shape(n.out())),
                 OnnxType::f32, std::move(options)),
          true);
}

// The whole result, from which the pads are cut.
void write_conv_transpose(TfliteNode& n) {
  const TfliteShape x = n.w.shape(n.in(0)), y = n.w.shape(n.out());
  if (x.size() != 4 || n.attr("group", 1) != 1) n.w.lacks(n.n, "such a transposed convolution");
  if (!n.w.is_known(n.in(1))) n.w.lacks(n.n, "a computed weight");
  const Tensor weight = n.w.tensor(n.in(1));
  std::vector<int64_t> stride = n.list("strides"), pads = n.list("pads");
  for (const int64_t d : n.list("dilations"))
    if (d != 1) n.w.lacks(n.n, "a dilation");
  if (stride.empty()) stride = {1, 1};
  if (pads.empty()) pads = {0, 0, 0, 0};
  TfliteShape whole = last_shape(y), begin{0, pads[0], pads[1], 0};
  WrittenWindow w;
  w.stride = stride;
  WrittenWindow more;
  for (size_t d = 0; d < 2; ++d) {
    whole[d + 1] = (x[d + 2] - 1) * stride[d] + weight.size(static_cast<int64_t>(d) + 2);
    more.after[d] = std::max<int64_t>(0, y[d + 2] + pads[d] - whole[d + 1]);
  }
  const int filter = n.w.constant(contiguous(permute(weight, {1, 2, 3, 0})));
  int t = n.w.op(67, {n.w.constant(whole), filter, n.w.last(n.in(0))}, whole, OnnxType::f32,
                 windowed(49, w));
  t = padded(n, t, more, 0);
  if (n.w.shape_of(t) != last_shape(y))
    t = n.w.op(65, {t, n.w.constant(begin), n.w.constant(last_shape(y))}, last_shape(y),
               OnnxType::f32, {48});
  if (n.has(2)) t = n.w.op(0, {t, n.w.plain(n.in(2))}, last_shape(y), OnnxType::f32, {11, {}, 0});
  n.w.set(n.out(), t, true);
}

/// How many pixels of the input each window holds, [1, h, w, 1].
Tensor counts_of(const TfliteNode& n, const WrittenWindow& w) {
  const TfliteShape &x = n.w.shape(n.in(0)), &y = n.w.shape(n.out());
  std::vector<Tensor> sides;
  for (size_t d = 0; d < 2; ++d) {
    std::vector<float> v;
    for (int64_t i = 0; i < y[d + 2]; ++i) {
      const int64_t from = i * w.stride[d] - w.before[d];
      v.push_back(
          static_cast<float>(std::min(from + w.kernel[d], x[d + 2]) - std::max<int64_t>(from, 0)));
    }
    sides.push_back(tandem::tensor(v));
  }
  return (sides[0].reshape({1, -1, 1, 1}) * sides[1].reshape({1, 1, -1, 1}));
}

}  // namespace

bool tflite_pool_window(const TfliteNode& n, const std::string& x, bool largest,
                        TfliteOptions& options, int& to) {
  const WrittenWindow w = window_of(n, n.list("kernel_shape"));
  const bool plain = w.before == std::vector<int64_t>{0, 0} && w.after == w.before;
  if (w.dilation != std::vector<int64_t>{1, 1} || n.n.outputs.size() > 1) return false;
  if (!largest && (!plain || (w.same && n.attr("count_include_pad", 0)))) return false;
  options = windowed(5, w);
  options.fields.add<int32_t>(3, static_cast<int32_t>(w.kernel[1]));
  options.fields.add<int32_t>(4, static_cast<int32_t>(w.kernel[0]));
  options.activation = 5;
  constexpr float kLeast = -128;
  to = padded(n, n.w.last(x), w, kLeast);
  return true;
}

namespace {

void write_pool(TfliteNode& n) {
  if (n.w.shape(n.in(0)).size() != 4) n.w.lacks(n.n, "a pool that is not one of images");
  if (n.n.outputs.size() > 1 && !n.n.outputs[1].empty()) n.w.lacks(n.n, "the places of maxima");
  const bool largest = n.n.op == "MaxPool";
  const WrittenWindow w = window_of(n, n.list("kernel_shape"));
  if (w.dilation != std::vector<int64_t>{1, 1}) n.w.lacks(n.n, "a dilated pool");
  if (!largest && n.attr("ceil_mode", 0) && n.attr("count_include_pad", 0))
    n.w.lacks(n.n, "such padding");
  TfliteOptions o = windowed(5, w);
  o.fields.add<int32_t>(3, static_cast<int32_t>(w.kernel[1]));
  o.fields.add<int32_t>(4, static_cast<int32_t>(w.kernel[0]));
  o.activation = 5;
  const TfliteShape y = last_shape(n.w.shape(n.out()));
  const bool plain = w.before == std::vector<int64_t>{0, 0} && w.after == w.before;
  // SAME counts what is there, which padding that counts does not.
  if (!largest && w.same && n.attr("count_include_pad", 0)) n.w.lacks(n.n, "padding that counts");
  int t = n.w.op(largest ? 17 : 1, {padded(n, n.w.last(n.in(0)), w, largest ? kLowest : 0)}, y,
                 OnnxType::f32, std::move(o));
  if (!largest && !plain && !n.attr("count_include_pad", 0)) {
    const auto all = static_cast<float>(w.kernel[0] * w.kernel[1]);
    t = n.w.op(18, {t, n.w.constant(all / counts_of(n, w))}, y, OnnxType::f32, {21, {}, 0});
  }
  n.w.set(n.out(), t, true);
}

void write_global_pool(TfliteNode& n) {
  const TfliteShape x = n.w.shape(n.in(0));
  if (x.size() != 4) n.w.lacks(n.n, "a pool that is not one of images");
  TfliteOptions o{27};
  o.fields.add<uint8_t>(0, 1);
  n.w.set(n.out(),
          n.w.op(n.n.op == "GlobalMaxPool" ? 82 : 40, {n.w.last(n.in(0)), n.w.constant({1, 2})},
                 {x[0], 1, 1, x[1]}, OnnxType::f32, std::move(o)),
          true);
}

// ---- matrices

TfliteOptions matrix_options(bool keep) {
  TfliteOptions o{8};
  o.fields.add<uint8_t>(2, keep ? 1 : 0);
  o.activation = 0;
  o.version = keep ? 2 : 1;
  return o;
}
int batch_matmul(const TfliteNode& n, int a, int b) {
  TfliteOptions o{101};
  return n.w.op(126, {a, b}, n.w.shape(n.out()), OnnxType::f32, std::move(o));
}

}  // namespace

WrittenBias tflite_bias(const TfliteNode& n, int64_t channels) {
  const auto fits = [&](const std::string& name) {
    return n.w.is_known(name) && n.w.shape(name) == TfliteShape{channels};
  };
  if (n.has(2)) return {fits(n.in(2)) ? n.in(2) : "", n.out(), nullptr};
  const OnnxNode* next = n.w.only_reader(n.out());
  if (next && next->op == "Add" && next->inputs.size() == 2)
    if (const std::string& other = next->inputs[next->inputs[0] == n.out() ? 1 : 0]; fits(other))
      return {other, next->outputs[0], next};
  return {"", n.out(), nullptr};
}

namespace {

void write_gemm(TfliteNode& n) {
  if (n.number("alpha", 1) != 1 || n.number("beta", 1) != 1) n.w.lacks(n.n, "a factor");
  const TfliteShape y = n.w.shape(n.out());
  int a = n.w.plain(n.in(0));
  if (n.attr("transA", 0)) a = n.w.transposed(a, {1, 0});
  if (n.w.is_known(n.in(1))) {
    int weight = -1;
    if (const auto stored = n.w.stored_codes(n.in(1));
        stored && stored->codes.dtype() == DType::i8 && n.attr("transB", 0)) {
      const int codes = n.w.constant(stored->codes);  // floats when the file is loaded
      n.w.scaled(codes, stored->scales);
      weight = n.w.op(6, {codes}, n.w.shape(n.in(1)), OnnxType::f32, {38, {}, -1, 5});
    } else {
      const Tensor b = n.w.tensor(n.in(1));
      weight = n.w.constant(contiguous(n.attr("transB", 0) ? b : b.transpose(0, 1)));
    }
    const WrittenBias bias = tflite_bias(n, y.back());
    const int t =
        n.w.op(9, {a, weight, bias.name.empty() ? bias_of(n, 1000, y[1]) : n.w.plain(bias.name)}, y,
               OnnxType::f32, matrix_options(false));
    if (bias.adds) n.w.leave_out(bias.adds);
    if (!n.has(2) || bias.name == n.in(2)) return n.w.set(bias.result, t);
    return n.w.set(n.out(), n.w.op(0, {t, n.w.plain(n.in(2))}, y, OnnxType::f32, {11, {}, 0}));
  }
  int b = n.w.plain(n.in(1));
  if (n.attr("transB", 0)) b = n.w.transposed(b, {1, 0});
  int t = batch_matmul(n, a, b);
  if (n.has(2)) t = n.w.op(0, {t, n.w.plain(n.in(2))}, y, OnnxType::f32, {11, {}, 0});
  n.w.set(n.out(), t);
}

void write_matmul(TfliteNode& n) {
  const TfliteShape a = n.w.shape(n.in(0)), b = n.w.shape(n.in(1));
  if (a.size() < 2 || b.size() < 2) n.w.lacks(n.n, "a vector");
  if (n.w.is_known(n.in(1)) && b.size() == 2) {
    const int weight = n.w.constant(contiguous(n.w.tensor(n.in(1)).transpose(0, 1)));
    return n.w.set(
        n.out(), n.w.op(9, {n.w.plain(n.in(0)), weight, bias_of(n, 1000, b[1])}, n.w.shape(n.out()),
                        OnnxType::f32, matrix_options(a.size() > 2)));
  }
  n.w.set(n.out(), batch_matmul(n, n.w.plain(n.in(0)), n.w.plain(n.in(1))));
}

// ---- norms, resizing

/// Numbers of channels, for an image with channels last or x as it is.
int of_channels(const TfliteNode& n, const Tensor& t, bool last) {
  const size_t rank = n.w.shape(n.in(0)).size();
  Shape s(t.numel());
  for (size_t d = 2; d < rank && !last; ++d) s.push_back(1);
  return n.w.constant(contiguous(t.reshape(s)));
}
void write_batch_norm(TfliteNode& n) {
  const auto line = line_of(n.w, n.n);
  if (!line) n.w.lacks(n.n, "computed statistics");
  const bool last = n.w.shape(n.in(0)).size() == 4;
  const TfliteShape s = last ? last_shape(n.w.shape(n.out())) : n.w.shape(n.out());
  const int x = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  const int t = n.w.op(18, {x, of_channels(n, line->factor, last)}, s, OnnxType::f32, {21, {}, 0});
  n.w.set(n.out(),
          n.w.op(0, {t, of_channels(n, line->offset, last)}, s, OnnxType::f32, {11, {}, 0}), last);
}

void write_layer_norm(TfliteNode& n) {
  const TfliteShape s = n.w.shape(n.in(0));
  std::vector<int64_t> axes;
  TfliteShape one = s;
  for (int64_t a = n.axis(n.attr("axis", -1)); a < static_cast<int64_t>(s.size()); ++a) {
    axes.push_back(a);
    one[static_cast<size_t>(a)] = 1;
  }
  const auto mean = [&](int x) {
    TfliteOptions o{27};
    o.fields.add<uint8_t>(0, 1);
    return n.w.op(40, {x, n.w.constant(axes)}, one, OnnxType::f32, std::move(o));
  };
  const int x = n.w.plain(n.in(0)), m = mean(x);
  const int variance = mean(n.w.op(99, {x, m}, s, OnnxType::f32, {76}));
  const int more = n.w.op(0, {variance, n.w.constant(n.number("epsilon", 1e-5f))}, one,
                          OnnxType::f32, {11, {}, 0});
  const int factor = n.w.op(76, {more}, one, OnnxType::f32);
  int t = n.w.op(41, {x, m}, s, OnnxType::f32, {28, {}, 0});
  t = n.w.op(18, {t, factor}, s, OnnxType::f32, {21, {}, 0});
  t = n.w.op(18, {t, n.w.plain(n.in(1))}, s, OnnxType::f32, {21, {}, 0});
  if (n.has(2)) t = n.w.op(0, {t, n.w.plain(n.in(2))}, s, OnnxType::f32, {11, {}, 0});
  n.w.set(n.out(), t);
}

void write_resize(TfliteNode& n) {
  const TfliteShape x = n.w.shape(n.in(0)), y = n.w.shape(n.out());
  if (x.size() != 4 || x[0] != y[0] || x[1] != y[1]) n.w.lacks(n.n, "what is not an image");
  const std::string mode = n.text("mode", "nearest"),
                    at = n.text("coordinate_transformation_mode", "half_pixel");
  const bool nearest = mode == "nearest", corners = at == "align_corners";
  const bool whole = y[2] % x[2] == 0 && y[3] % x[3] == 0;
  const bool half = at.ends_with("half_pixel");
  if (mode == "cubic" || (!half && !corners && at != "asymmetric"))
    n.w.lacks(n.n, mode + " by " + at);
  if (nearest && !whole && (at != "asymmetric" || n.text("nearest_mode", "") != "floor"))
    n.w.lacks(n.n, "nearest pixels by " + at);
  TfliteOptions o{static_cast<uint8_t>(nearest ? 74 : 15)};
  o.fields.add<uint8_t>(nearest ? 0 : 2, corners && !nearest ? 1 : 0);
  o.fields.add<uint8_t>(nearest ? 1 : 3, half && !nearest ? 1 : 0);
  o.version = 3;
  n.w.set(n.out(),
          n.w.op(nearest ? 97 : 23, {n.w.last(n.in(0)), n.w.constant({y[2], y[3]})}, last_shape(y),
                 OnnxType::f32, std::move(o)),
          true);
}

}  // namespace

std::vector<TfliteWriteRow> tflite_layer_writes() {
  return {{"Conv", write_conv},
          {"ConvTranspose", write_conv_transpose},
          {"MaxPool", write_pool},
          {"AveragePool", write_pool},
          {"GlobalAveragePool", write_global_pool},
          {"GlobalMaxPool", write_global_pool},
          {"Gemm", write_gemm},
          {"MatMul", write_matmul},
          {"BatchNormalization", write_batch_norm},
          {"LayerNormalization", write_layer_norm},
          {"Resize", write_resize}};
}

}  // namespace tandem::onnx
