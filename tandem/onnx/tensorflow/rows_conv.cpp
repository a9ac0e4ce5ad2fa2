// SPDX-License-Identifier: Apache-2.0
// TensorFlow's convolutions, pools, norms and resizing. Its tensors keep channels last: they are
// turned, go through ONNX's ops of the same meaning, and are turned back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// [n, ..., c] as [n, c, ...].
Tensor channels_first(const Tensor& x) { return movedim(x, IntList{-1}, IntList{1}); }
Tensor channels_last(const Tensor& x) { return movedim(x, IntList{1}, IntList{-1}); }

/// Whether tensors have their channels last, and the entries of lists for the spatial dimensions.
struct Layout {
  bool last;
  size_t spatial;
  std::vector<int64_t> list(const OnnxCall& c, const char* name) const {
    const std::vector<int64_t> v = c.attr_ints(name, std::vector<int64_t>(spatial + 2, 1));
    TD_CHECK(v.size() == spatial + 2, Value, "its attribute '{}' has {} entries, expected {}", name,
             v.size(), spatial + 2);
    const auto first = v.begin() + (last ? 1 : 2);
    return {first, first + static_cast<int64_t>(spatial)};
  }
};

Layout layout_of(const OnnxCall& c, const Tensor& x) {
  TD_CHECK(x.dim() >= 3, Shape, "expected images, got {}", x.shape().to_string());
  const std::string format = c.attr_text("data_format", "NHWC");
  return {format.find('C') + 1 == format.size(), static_cast<size_t>(x.dim() - 2)};
}

/// Window attributes of ONNX from those of TensorFlow.
OnnxAttributes window_of(const OnnxCall& c, const Layout& l, const char* kernel) {
  OnnxAttributes a{onnx_ints("strides", l.list(c, "strides"))};
  if (c.attribute("dilations")) a.push_back(onnx_ints("dilations", l.list(c, "dilations")));
  if (kernel) a.push_back(onnx_ints("kernel_shape", l.list(c, kernel)));
  const std::string padding = c.attr_text("padding", "VALID");
  if (padding != "EXPLICIT") {
    TD_CHECK(padding == "SAME" || padding == "VALID", Unsupported, "there is no padding '{}'",
             padding);
    a.push_back(onnx_text("auto_pad", padding == "SAME" ? "SAME_UPPER" : "VALID"));
    return a;
  }
  const std::vector<int64_t> all = c.attr_ints("explicit_paddings");
  TD_CHECK(all.size() == 2 * (l.spatial + 2), Value, "has {} explicit pads, expected {}",
           all.size(), 2 * (l.spatial + 2));
  std::vector<int64_t> pads(2 * l.spatial);
  for (size_t d = 0; d < l.spatial; ++d) {
    const size_t from = 2 * (d + (l.last ? 1 : 2));
    pads[d] = all[from];
    pads[l.spatial + d] = all[from + 1];
  }
  a.push_back(onnx_ints("pads", std::move(pads)));
  return a;
}

/// [..., i, o] as [o, i, ...].
Tensor filter_first(const Tensor& w) {
  std::vector<int64_t> order{w.dim() - 1, w.dim() - 2};
  for (int64_t d = 0; d < w.dim() - 2; ++d) order.push_back(d);
  return permute(w, IntList(order));
}

void set_image(OnnxCall& c, const Layout& l, const Tensor& y, OnnxType type) {
  c.set(0, l.last ? channels_last(y) : y, type);
}

void tf_conv(OnnxCall& c) {
  const Tensor x = c.x(0), w = c.x(1);
  const Layout l = layout_of(c, x);
  const Tensor first = l.last ? channels_first(x) : x;
  TD_CHECK(w.dim() == x.dim() && w.size(-2) > 0 && first.size(1) % w.size(-2) == 0, Shape,
           "a filter {} does not fit {}", w.shape().to_string(), x.shape().to_string());
  OnnxAttributes a = window_of(c, l, nullptr);
  a.push_back(onnx_int("group", first.size(1) / w.size(-2)));
  set_image(c, l, as_onnx(c, "Conv", {OnnxValue(first), OnnxValue(filter_first(w))}, std::move(a)),
            c.type(0));
}

// [h, w, i, m]: every input channel has m results, which stand together.
void tf_depthwise_conv(OnnxCall& c) {
  const Tensor x = c.x(0), w = c.x(1);
  const Layout l = layout_of(c, x);
  TD_CHECK(x.dim() == 4 && w.dim() == 4, Shape, "expected images and a filter [h, w, i, m], got {}",
           w.shape().to_string());
  OnnxAttributes a = window_of(c, l, nullptr);
  a.push_back(onnx_int("group", w.size(2)));
  const Tensor filter =
      filter_first(w.reshape({w.shape(0), w.shape(1), Dim(1), w.shape(2) * w.shape(3)}));
  set_image(c, l,
            as_onnx(c, "Conv", {OnnxValue(l.last ? channels_first(x) : x), OnnxValue(filter)},
                    std::move(a)),
            c.type(0));
}

// The gradient of a convolution, which is how TensorFlow writes transposed ones: input 0 has the
// sizes of the result, the filter is [..., o, i].
void tf_conv_transpose(OnnxCall& c) {
  const Tensor w = c.x(1), x = c.x(2);
  const Layout l = layout_of(c, x);
  std::vector<int64_t> sizes = c.ints(0);
  if (sizes.size() == l.spatial + 2) {
    const auto first = sizes.begin() + (l.last ? 1 : 2);
    sizes = std::vector<int64_t>(first, first + static_cast<int64_t>(l.spatial));
  }
  TD_CHECK(sizes.size() == l.spatial && w.dim() == x.dim(), Shape,
           "a result of {} sizes and a filter {} do not fit {}", sizes.size(),
           w.shape().to_string(), x.shape().to_string());
  onnx_shape(sizes);
  TD_CHECK(c.attr_text("padding", "VALID") != "EXPLICIT", Unsupported,
           "explicit pads of a transposed convolution are not supported");
  OnnxAttributes a{onnx_ints("strides", l.list(c, "strides")), onnx_ints("output_shape", sizes),
                   onnx_text("auto_pad", "SAME_UPPER")};
  if (c.attribute("dilations")) a.push_back(onnx_ints("dilations", l.list(c, "dilations")));
  set_image(c, l,
            as_onnx(c, "ConvTranspose",
                    {OnnxValue(l.last ? channels_first(x) : x), OnnxValue(filter_first(w))},
                    std::move(a)),
            c.type(2));
}

template <bool largest>
void tf_pool(OnnxCall& c) {
  const Tensor x = c.x(0);
  const Layout l = layout_of(c, x);
  set_image(
      c, l,
      as_onnx(c, largest ? "MaxPool" : "AveragePool",
              {OnnxValue(l.last ? channels_first(x) : x, c.type(0))}, window_of(c, l, "ksize")),
      c.type(0));
}

void tf_batch_norm(OnnxCall& c) {
  const Tensor x = c.x(0), scale = c.x(1), offset = c.x(2);
  const bool last = layout_of(c, x).last;
  const double epsilon = c.attr_float("epsilon", 1e-4);
  Shape s;
  IntList others;
  for (int d = 0; d < x.dim(); ++d) {
    const bool channel = d == (last ? x.dim() - 1 : 1);
    s.push_back(channel ? x.shape(d) : Dim(1));
    if (!channel) others.push_back(d);
  }
  const Tensor v = x.dtype() == scale.dtype() ? x : x.to(scale.dtype());
  const bool training = c.attr("is_training", 1) != 0;
  const Tensor m = training ? mean(v, others) : c.x(3);
  const Tensor variance = training ? var(v, others, 0) : c.x(4);
  const Tensor factor = scale / sqrt(variance + epsilon);
  c.set(0, (v * factor.reshape(s) + (offset - m * factor).reshape(s)).to(x.dtype()), c.type(0));
  if (c.wants(1)) c.set(1, m);
  if (c.wants(2)) c.set(2, variance);
}

void tf_local_response(OnnxCall& c) {
  const int64_t radius = c.attr("depth_radius", 5);
  check_onnx_list({radius});
  const double size = 2.0 * static_cast<double>(radius) + 1;
  const Tensor y =
      as_onnx(c, "LRN", {OnnxValue(channels_first(c.x(0)))},
              {onnx_int("size", 2 * radius + 1), onnx_float("bias", c.attr_float("bias", 1)),
               onnx_float("alpha", c.attr_float("alpha", 1) * size),
               onnx_float("beta", c.attr_float("beta", 0.5))});
  c.set(0, channels_last(y), c.type(0));
}

template <int kind>  // 0: nearest, 1: linear
void tf_resize(OnnxCall& c) {
  const bool corners = c.attr("align_corners", 0), half = c.attr("half_pixel_centers", 0);
  const std::vector<int64_t> sizes = c.ints(1);
  TD_CHECK(sizes.size() == 2 && c.x(0).dim() == 4, Shape, "expected [n, h, w, c] and two sizes");
  const char* at = corners     ? "align_corners"
                   : !half     ? "asymmetric"
                   : kind == 0 ? "tf_half_pixel_for_nn"
                               : "half_pixel";
  OnnxAttributes a{onnx_ints("axes", {1, 2}), onnx_text("coordinate_transformation_mode", at),
                   onnx_text("mode", kind == 0   ? "nearest"
                                     : kind == 1 ? "linear"
                                                 : "cubic")};
  if (kind == 0) a.push_back(onnx_text("nearest_mode", corners ? "round_prefer_ceil" : "floor"));
  const Tensor x = kind == 0 ? c.x(0) : c.x(0).to(DType::f32);
  const Tensor y =
      as_onnx(c, "Resize", {OnnxValue(x), OnnxValue(), OnnxValue(), c.value(1)}, std::move(a));
  c.set(0, y, kind == 0 ? c.type(0) : OnnxType::f32);
}

// The cubic convolution kernel (Keys 1981) with parameter a, at distance x.
double cubic_weight(double a, double x) {
  return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

// x resized to `to` along dimension d, four weighted inputs to each output. TensorFlow rounds
// distances to 1/1024. With half_pixel_centers a = -0.5 and what lies outside does not count;
// otherwise a = -0.75 and the border repeats (core/kernels/image/resize_bicubic_op.cc).
Tensor resize_cubic(const Tensor& x, int64_t d, int64_t to, bool corners, bool half) {
  constexpr double kSteps = 1024;
  const int64_t from = x.size(d);
  TD_CHECK(from > 0 && to > 0, Shape, "cannot resize dimension {} of {} from {} to {}", d,
           x.shape().to_string(), from, to);
  check_onnx_loop(static_cast<double>(to), 4 * (sizeof(float) + sizeof(int64_t)));
  const auto in = static_cast<float>(from), out = static_cast<float>(to);
  const float scale = corners && to > 1 ? (in - 1) / (out - 1) : in / out;
  const auto n = static_cast<size_t>(to);
  std::vector<std::vector<int64_t>> places(4, std::vector<int64_t>(n));
  std::vector<std::vector<float>> weights(4, std::vector<float>(n));
  for (size_t o = 0; o < n; ++o) {
    const auto place = static_cast<float>(o);
    const float at = half ? (place + 0.5f) * scale - 0.5f : place * scale;
    const auto base = static_cast<int64_t>(std::floor(at));
    const double offset =
        std::nearbyint(static_cast<double>(at - static_cast<float>(base)) * kSteps) / kSteps;
    double taps[4], sum = 0;
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t i = base - 1 + k;
      const double distance = std::abs(offset + 1 - static_cast<double>(k));
      const bool counts = !half || (i >= 0 && i < from);
      taps[k] = counts ? cubic_weight(half ? -0.5 : -0.75, distance) : 0;
      sum += taps[k];
      places[static_cast<size_t>(k)][o] = std::clamp<int64_t>(i, 0, from - 1);
    }
    for (size_t k = 0; k < 4; ++k)
      weights[k][o] = static_cast<float>(half ? taps[k] / sum : taps[k]);
  }
  Shape along(to);
  for (int64_t k = d + 1; k < x.dim(); ++k) along.push_back(1);
  Tensor y;
  for (size_t k = 0; k < 4; ++k) {
    const Tensor part = x.index_select(d, constant(tensor(places[k]))) *
                        constant(tensor(weights[k]).reshape(along));
    y = k == 0 ? part : y + part;
  }
  return y;
}

void tf_resize_cubic(OnnxCall& c) {
  const bool corners = c.attr("align_corners", 0), half = c.attr("half_pixel_centers", 0);
  const std::vector<int64_t> sizes = c.ints(1);
  TD_CHECK(sizes.size() == 2 && c.x(0).dim() == 4, Shape, "expected [n, h, w, c] and two sizes");
  const Tensor wide = resize_cubic(c.x(0).to(DType::f32), 2, sizes[1], corners, half);
  c.set(0, resize_cubic(wide, 1, sizes[0], corners, half), OnnxType::f32);
}

// Where `n` pixels lie between `from` and `to` [k] on a side of `size` pixels: [k, n]. Boxes are in
// shares of the side's last pixel; a single pixel lies in the middle of its box.
Tensor crop_places(const Tensor& from, const Tensor& to, int64_t n, int64_t size) {
  const auto last = static_cast<double>(size - 1);
  if (n == 1) return ((from + to) * (0.5 * last)).unsqueeze(-1);
  const Tensor step = (to - from) * last / static_cast<double>(n - 1);
  return (from * last).unsqueeze(-1) + step.unsqueeze(-1) * arange(n).to(DType::f32);
}

// Boxes (y1, x1, y2, x2) [k, 4] of the images [k] resized to [k, h, w, c]; pixels of a box that lie
// outside of its image have a value of their own.
void tf_crop_and_resize(OnnxCall& c) {
  const Tensor x = c.x(0), boxes = c.x(1), image = c.x(2);
  const std::vector<int64_t> size = c.ints(3);
  const std::string method = c.attr_choice("method", "bilinear", {"bilinear", "nearest"});
  TD_CHECK(x.dim() == 4 && boxes.dim() == 2 && boxes.size(1) == 4 && image.dim() == 1 &&
               size.size() == 2 && size[0] > 0 && size[1] > 0 && x.size(1) > 0 && x.size(2) > 0,
           Shape, "expected images [n, h, w, c], boxes [k, 4] and two sizes, got {} and {}",
           x.shape().to_string(), boxes.shape().to_string());
  check_onnx_size({boxes.shape(0), Dim(size[0]), Dim(size[1]), x.shape(3)}, sizeof(float));
  const auto side = [&](int64_t d) {
    return crop_places(boxes.select(1, d), boxes.select(1, d + 2), size[static_cast<size_t>(d)],
                       x.size(d + 1));
  };
  const Tensor y = side(0).unsqueeze(2), z = side(1).unsqueeze(1);  // [k, h, 1], [k, 1, w]
  const auto limit = [&](const Tensor& at, int64_t d) {
    return clamp(at, 0, static_cast<double>(x.size(d) - 1));
  };
  const Tensor row = limit(y, 1), column = limit(z, 2);
  const Tensor number = image.to(DType::i64).reshape({-1, 1, 1});
  // Numbers do not count from the end: a negative one becomes one that no image has.
  const Tensor of = where(number < 0, std::numeric_limits<int64_t>::max(), number);
  const auto pixels = [&](const Tensor& i, const Tensor& j) {
    return index(x, {of, i.to(DType::i64), j.to(DType::i64)}).to(DType::f32);
  };
  Tensor crops;
  if (method == "nearest") {
    crops = pixels(floor(row + 0.5), floor(column + 0.5));
  } else {
    const Tensor up = floor(row), down = ceil(row), left = floor(column), right = ceil(column);
    const Tensor part = (column - left).unsqueeze(-1);
    const auto between = [&](const Tensor& i) {
      const Tensor first = pixels(i, left);
      return first + (pixels(i, right) - first) * part;
    };
    const Tensor upper = between(up);
    crops = upper + (between(down) - upper) * (row - up).unsqueeze(-1);
  }
  const Tensor inside = logical_and(eq(row, y), eq(column, z)).unsqueeze(-1);
  c.set(0, where(inside, crops, c.attr_float("extrapolation_value", 0)), OnnxType::f32);
}

}  // namespace

// table: a row for each op
std::span<const OnnxRow> onnx_tf_conv_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTf,
       "Conv2D",
       1,
       0,
       tf_conv,
       {kOnnxAny, kOnnxAny, "data_format dilations explicit_paddings padding strides"}},
      {kOnnxTf,
       "Conv3D",
       1,
       0,
       tf_conv,
       {kOnnxAny, kOnnxAny, "data_format dilations explicit_paddings padding strides"}},
      {kOnnxTf,
       "DepthwiseConv2dNative",
       1,
       0,
       tf_depthwise_conv,
       {kOnnxAny, kOnnxAny, "data_format dilations explicit_paddings padding strides"}},
      {kOnnxTf,
       "Conv2DBackpropInput",
       1,
       0,
       tf_conv_transpose,
       {kOnnxAny, kOnnxAny, "data_format dilations explicit_paddings padding strides"}},
      {kOnnxTf,
       "Conv3DBackpropInputV2",
       1,
       0,
       tf_conv_transpose,
       {kOnnxAny, kOnnxAny, "data_format dilations explicit_paddings padding strides"}},
      {kOnnxTf,
       "MaxPool",
       1,
       0,
       tf_pool<true>,
       {kOnnxAny, kOnnxAny, "data_format explicit_paddings ksize padding strides"}},
      {kOnnxTf,
       "MaxPool3D",
       1,
       0,
       tf_pool<true>,
       {kOnnxAny, kOnnxAny, "data_format explicit_paddings ksize padding strides"}},
      {kOnnxTf,
       "AvgPool",
       1,
       0,
       tf_pool<false>,
       {kOnnxAny, kOnnxAny, "data_format explicit_paddings ksize padding strides"}},
      {kOnnxTf,
       "AvgPool3D",
       1,
       0,
       tf_pool<false>,
       {kOnnxAny, kOnnxAny, "data_format explicit_paddings ksize padding strides"}},
      settings_from(
          3, {kOnnxTf,
              "FusedBatchNorm",
              1,
              0,
              tf_batch_norm,
              {kOnnxAny, kOnnxAny, "data_format epsilon is_training ~exponential_avg_factor"}}),
      settings_from(
          3, {kOnnxTf,
              "FusedBatchNormV2",
              1,
              0,
              tf_batch_norm,
              {kOnnxAny, kOnnxAny, "data_format epsilon is_training ~exponential_avg_factor"}}),
      settings_from(
          3, {kOnnxTf,
              "FusedBatchNormV3",
              1,
              0,
              tf_batch_norm,
              {kOnnxAny, kOnnxAny, "data_format epsilon is_training ~exponential_avg_factor"}}),
      {kOnnxTf,
       "LRN",
       1,
       0,
       tf_local_response,
       {kOnnxAny, kOnnxAny, "alpha beta bias depth_radius"}},
      settings_from(1, {kOnnxTf,
                        "ResizeNearestNeighbor",
                        1,
                        0,
                        tf_resize<0>,
                        {kOnnxAny, kOnnxAny, "align_corners half_pixel_centers"}}),
      settings_from(1, {kOnnxTf,
                        "ResizeBilinear",
                        1,
                        0,
                        tf_resize<1>,
                        {kOnnxAny, kOnnxAny, "align_corners half_pixel_centers"}}),
      settings_from(1, {kOnnxTf,
                        "ResizeBicubic",
                        1,
                        0,
                        tf_resize_cubic,
                        {kOnnxAny, kOnnxAny, "align_corners half_pixel_centers"}}),
      settings_from(1, {kOnnxTf,
                        "CropAndResize",
                        1,
                        0,
                        tf_crop_and_resize,
                        {4, 1, "extrapolation_value method"}}),
  };
  return kRows;
}

}  // namespace tandem::onnx
