// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite": numbers to codes and back, and codes from codes with the roundings
// of TFLite's reference kernels.
#include <cmath>

#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {
/// Numbers that are known in a trace, too.
Tensor known_numbers(const std::vector<double>& v, const Shape& shape, DType dtype) {
  Tensor t;
  {
    const OutsideTrace outside;
    t = tensor(v, shape).to(dtype);
  }
  return constant(t);
}
Tensor known_number(int64_t v) {
  return known_numbers({static_cast<double>(v)}, Shape(), DType::i64);
}
/// A number for each scale, to broadcast against x.
Tensor beside_axis(const std::vector<double>& v, const Tensor& x, int64_t axis, DType dtype) {
  Shape s;
  if (v.size() > 1)
    for (int d = 0; d < x.dim(); ++d) s.push_back(d == axis ? Dim(x.size(d)) : Dim(1));
  TD_CHECK(v.size() == 1 || s.numel() == Dim(static_cast<int64_t>(v.size())), Shape,
           "{} scales for {}", v.size(), x.shape().to_string());
  return known_numbers(v, s, dtype);
}
Tensor numbers_of(const Tensor& codes, const std::vector<double>& scale,
                  const std::vector<double>& zero, int64_t axis) {
  const Tensor x = codes.to(DType::f32);
  return (x - beside_axis(zero, x, axis, DType::f32)) * beside_axis(scale, x, axis, DType::f32);
}
template <class T>
std::vector<double> wide_list(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}
}  // namespace

Tensor tflite_numbers(const Tensor& codes, const TfliteScales& s) {
  return numbers_of(codes, wide_list(s.scale), wide_list(s.zero), s.axis);
}

OnnxAttributes tflite_attributes(const TfliteScales& s, const std::string& prefix) {
  OnnxAttribute scale;
  scale.name = prefix + "scale";
  scale.kind = OnnxAttribute::floats;
  scale.float_list = s.scale;
  OnnxAttributes a{std::move(scale), onnx_ints((prefix + "zero").c_str(), s.zero)};
  if (s.scale.size() > 1) a.push_back(onnx_int((prefix + "axis").c_str(), s.axis));
  return a;
}

namespace {

void tflite_dequantize(OnnxCall& c) {
  c.set(0, numbers_of(c.x(0), wide_list(c.attr_floats("scale")), wide_list(c.attr_ints("zero")),
                      c.attr("axis", 0)));
}

// Halves are rounded away from zero. The quotient is one of f32.
void tflite_quantize(OnnxCall& c) {
  const Tensor x = c.x(0).to(DType::f32);
  const int64_t axis = c.attr("axis", 0);
  const auto type = static_cast<OnnxType>(c.attr("to", static_cast<int64_t>(OnnxType::i8)));
  const OnnxTypeInfo& info = info_of(type);
  const Tensor q =
      (x / beside_axis(wide_list(c.attr_floats("scale")), x, axis, DType::f32)).to(DType::f64);
  const Tensor rounded = sign(q) * floor(abs(q) + 0.5) +
                         beside_axis(wide_list(c.attr_ints("zero")), x, axis, DType::f64);
  const double span = std::ldexp(1.0, info.bits), low = info.is_signed ? -span / 2 : 0;
  c.set(0, clamp(rounded, low, low + span - 1).to(info.carrier), type);
}

// ---- codes from codes, all in i64

}  // namespace

Tensor tflite_times_factor(const Tensor& x, const Tensor& multiplier, const Tensor& shift) {
  const Tensor left = clamp_min(shift, 0), right = clamp_min(-shift, 0);
  const Tensor one = ones_like(shift),
               half = bitwise_right_shift(bitwise_left_shift(one, right), 1);
  const Tensor high =
      bitwise_right_shift(x * bitwise_left_shift(one, left) * multiplier + (int64_t{1} << 30), 31);
  const Tensor below = (high < 0).to(DType::i64) * minimum(right, 1);
  return bitwise_right_shift(high + half - below, right);
}
Tensor tflite_times_factor(const Tensor& x, int64_t multiplier, int64_t shift) {
  return tflite_times_factor(x, known_number(multiplier), known_number(shift));
}
bool is_tflite_factor(const std::vector<int64_t>& f) {
  return f.size() == 2 && f[1] >= -31 && f[1] <= 30;
}
Tensor tflite_entries(const Tensor& table, const Tensor& x, int64_t first) {
  return table.index_select(0, (x - first).reshape({-1})).reshape(x.shape());
}

namespace {

Tensor times_factor(const OnnxCall& c, const Tensor& x, const char* name) {
  const std::vector<int64_t> f = c.attr_ints(name, {0, 0});
  TD_CHECK(is_tflite_factor(f), Value, "its factor '{}' is none", name);
  return tflite_times_factor(x, f[0], f[1]);
}
}  // namespace

Tensor tflite_code_less(const OnnxCall& c, size_t i, int64_t zero) {
  return c.x(i).to(DType::i64) - zero;
}
void tflite_set_bounded(OnnxCall& c, const Tensor& y) {
  const auto type = static_cast<OnnxType>(c.attr("to", static_cast<int64_t>(OnnxType::i8)));
  const Tensor bounded = clamp(y + c.attr("zero", 0), c.attr("low", -128), c.attr("high", 127));
  c.set(0, bounded.to(info_of(type).carrier), type);
}

Tensor tflite_times_short(const Tensor& x, const Tensor& multiplier, const Tensor& shift) {
  const Tensor half = where(multiplier < 0x7fff0000,
                            bitwise_right_shift(multiplier + (int64_t{1} << 15), 16), 0x7fff);
  const Tensor right = 15 - shift;
  const Tensor nudge = bitwise_left_shift(ones_like(shift), right - 1);
  return bitwise_right_shift(x * half + nudge, right);
}

Tensor tflite_times_short(const Tensor& x, int64_t multiplier, int64_t shift) {
  return tflite_times_short(x, known_number(multiplier), known_number(shift));
}

namespace {

/// Rounded once, halves away from zero.
Tensor times_factor_once(const Tensor& x, const Tensor& multiplier, const Tensor& shift) {
  const Tensor right = 31 - shift;
  const Tensor half = bitwise_left_shift(ones_like(shift), right - 1);
  const Tensor y = bitwise_right_shift(abs(x) * multiplier + half, right);
  return where(x < 0, -y, y);
}

/// Sums [..., o] with their bias (input 4).
Tensor with_bias_codes(const OnnxCall& c, const Tensor& sums) {
  const Tensor wide = sums.to(DType::i64);
  return c.has(4) ? wide + c.x(4).to(DType::i64) : wide;
}
/// They times the factors of channels (5, 6), as codes.
void set_products(OnnxCall& c, const Tensor& sums) {
  const Tensor y = with_bias_codes(c, sums);
  const bool wide = c.type(0) == OnnxType::i16;
  tflite_set_bounded(
      c, wide ? tflite_times_short(y, c.x(5), c.x(6)) : tflite_times_factor(y, c.x(5), c.x(6)));
}
void tflite_conv_row(OnnxCall& c) {
  set_products(c, onnx_channels_last(onnx_integer_conv(c, 0, 1, 2, 3, true)));
}
void tflite_matmul_row(OnnxCall& c) {
  const Tensor y = with_bias_codes(c, onnx_integer_matmul(c, 0, 1, 2, 3));
  tflite_set_bounded(c, times_factor_once(y, c.x(5), c.x(6)));
}
// The filter is [h, w, o, i]; input 7 has the sizes of the result.
void tflite_conv_transpose_row(OnnxCall& c) {
  OnnxAttributes window;
  for (const char* name : {"strides", "padding"})
    if (const OnnxAttribute* a = c.attribute(name)) window.push_back(*a);
  const Tensor x = onnx_centred(c, 0, 1, -1), w = onnx_centred(c, 2, 3, 2);
  set_products(c, run_as_tf(c, "Conv2DBackpropInput", {c.value(7), OnnxValue(w), OnnxValue(x)},
                            std::move(window))[0]
                      .tensor());
}
void tflite_batch_matmul_row(OnnxCall& c) {
  const std::vector<int64_t> zeros = c.attr_ints("zeros", {0, 0}),
                             f = c.attr_ints("product", {0, 0});
  TD_CHECK(zeros.size() == 2 && is_tflite_factor(f), Value, "its attributes are none");
  Tensor a = c.x(0).to(DType::f64) - static_cast<double>(zeros[0]),
         b = c.x(1).to(DType::f64) - static_cast<double>(zeros[1]);
  if (c.attr("adj_x", 0)) a = a.transpose(-1, -2);
  if (c.attr("adj_y", 0)) b = b.transpose(-1, -2);
  const Tensor y = matmul(a, b).to(DType::i64);
  if (c.type(0) != OnnxType::i16) return tflite_set_bounded(c, times_factor(c, y, "product"));
  tflite_set_bounded(c, tflite_times_short(y, f[0], f[1]));
}

template <int sign>
void tflite_add_row(OnnxCall& c) {
  const std::vector<int64_t> zeros = c.attr_ints("zeros", {0, 0});
  const int64_t finer = c.attr("finer", 20);
  TD_CHECK(zeros.size() == 2 && finer >= 0 && finer < 31, Value, "its attributes are none");
  const int64_t step = int64_t{1} << finer;
  const Tensor a = times_factor(c, tflite_code_less(c, 0, zeros[0]) * step, "a");
  const Tensor b = times_factor(c, tflite_code_less(c, 1, zeros[1]) * step, "b");
  tflite_set_bounded(c, times_factor(c, sign > 0 ? a + b : a - b, "sum"));
}
void tflite_mul_row(OnnxCall& c) {
  const std::vector<int64_t> zeros = c.attr_ints("zeros", {0, 0});
  TD_CHECK(zeros.size() == 2, Value, "its attribute 'zeros' has {} entries", zeros.size());
  tflite_set_bounded(
      c, times_factor(c, tflite_code_less(c, 0, zeros[0]) * tflite_code_less(c, 1, zeros[1]),
                      "product"));
}
void tflite_squared_row(OnnxCall& c) {
  const std::vector<int64_t> zeros = c.attr_ints("zeros", {0, 0});
  const int64_t finer = c.attr("finer", 7);
  TD_CHECK(zeros.size() == 2 && finer >= 0 && finer < 31, Value, "its attributes are none");
  const int64_t step = int64_t{1} << finer;
  const Tensor d = times_factor(c, tflite_code_less(c, 0, zeros[0]) * step, "a") -
                   times_factor(c, tflite_code_less(c, 1, zeros[1]) * step, "b");
  tflite_set_bounded(c, times_factor(c, d * d, "square"));
}
void tflite_prelu_row(OnnxCall& c) {
  const std::vector<int64_t> zeros = c.attr_ints("zeros", {0, 0});
  TD_CHECK(zeros.size() == 2, Value, "its attribute 'zeros' has {} entries", zeros.size());
  const Tensor x = tflite_code_less(c, 0, zeros[0]), slope = tflite_code_less(c, 1, zeros[1]);
  tflite_set_bounded(
      c, where(x >= 0, times_factor(c, x, "factor"), times_factor(c, x * slope, "negative")));
}
// What codes stand for in steps of 1/256.
void tflite_steps_row(OnnxCall& c) {
  const Tensor x = tflite_code_less(c, 0, c.attr("from", 0)) * (int64_t{1} << 8);
  c.set(0, times_factor(c, x, "factor"), OnnxType::i64);
}
void tflite_rescale_row(OnnxCall& c) {
  const Tensor x = tflite_code_less(c, 0, c.attr("from", 0));
  Tensor y = times_factor(c, c.attr("absolute", 0) ? abs(x) : x, "factor");
  if (c.attribute("negative")) y = where(x >= 0, y, times_factor(c, x, "negative"));
  tflite_set_bounded(c, y);
}

// Means of codes, halves rounded away from zero. A window at the border counts what it covers.
void tflite_average_row(OnnxCall& c) {
  const Tensor x = onnx_channels_first(c.x(0).to(DType::f64));
  const std::vector<int64_t> kernel = c.attr_ints("kernel_shape");
  check_onnx_list(kernel);
  OnnxAttributes window;
  for (const char* name : {"kernel_shape", "strides", "auto_pad"})
    if (const OnnxAttribute* a = c.attribute(name)) window.push_back(*a);
  const Tensor mean = as_onnx(c, "AveragePool", {OnnxValue(x)}, window);
  window.push_back(onnx_int("count_include_pad", 1));
  double all = 1;
  for (const int64_t k : kernel) all *= static_cast<double>(k);
  const Tensor count = round(as_onnx(c, "AveragePool", {OnnxValue(ones_like(x))}, window) * all);
  const Tensor sums = round(mean * count), half = floor(count / 2.0);
  const Tensor y = trunc((sums + where(sums > 0, half, -half)) / count);
  const auto type = static_cast<OnnxType>(c.attr("to", static_cast<int64_t>(OnnxType::i8)));
  c.set(0,
        clamp(onnx_channels_last(y), c.attr("low", -128), c.attr("high", 127))
            .to(info_of(type).carrier),
        type);
}

void tflite_lookup_row(OnnxCall& c) {
  c.set(0, tflite_entries(c.x(1), c.x(0).to(DType::i64), c.attr("first", 0)), c.type(1));
}

constexpr const char* kProducts = "auto_pad dilations group high low strides to zero";
constexpr OnnxRow kTfliteRows[] = {
    {kOnnxTflite, "Dequantize", 1, 0, tflite_dequantize, {1, 1, "axis scale zero"}},
    {kOnnxTflite, "Quantize", 1, 0, tflite_quantize, {1, 1, "axis scale to zero"}},
    {kOnnxTflite, "Conv", 1, 0, tflite_conv_row, {7, 1, kProducts}},
    {kOnnxTflite, "MatMul", 1, 0, tflite_matmul_row, {7, 1, "high low to zero"}},
    {kOnnxTflite, "Add", 1, 0, tflite_add_row<1>, {2, 1, "a b finer high low sum to zero zeros"}},
    {kOnnxTflite, "Sub", 1, 0, tflite_add_row<-1>, {2, 1, "a b finer high low sum to zero zeros"}},
    {kOnnxTflite, "Mul", 1, 0, tflite_mul_row, {2, 1, "high low product to zero zeros"}},
    {kOnnxTflite,
     "Rescale",
     1,
     0,
     tflite_rescale_row,
     {1, 1, "absolute factor from high low negative to zero"}},
    {kOnnxTflite,
     "AveragePool",
     1,
     0,
     tflite_average_row,
     {1, 1, "auto_pad high kernel_shape low strides to ~zero"}},
    settings_from(7, {kOnnxTflite,
                      "ConvTranspose",
                      1,
                      0,
                      tflite_conv_transpose_row,
                      {8, 1, "high low padding strides to zero"}}),
    {kOnnxTflite,
     "BatchMatMul",
     1,
     0,
     tflite_batch_matmul_row,
     {2, 1, "adj_x adj_y high low product to zero zeros"}},
    {kOnnxTflite,
     "SquaredDifference",
     1,
     0,
     tflite_squared_row,
     {2, 1, "a b finer high low square to zero zeros"}},
    {kOnnxTflite,
     "PRelu",
     1,
     0,
     tflite_prelu_row,
     {2, 1, "factor high low negative to zero zeros"}},
    {kOnnxTflite, "Steps", 1, 0, tflite_steps_row, {1, 1, "factor from"}},
    settings_from(1, {kOnnxTflite,
                      "Reduce",
                      1,
                      0,
                      tflite_reduce_row,
                      {2, 1, "factor from high keep_dims low mean to zero"}}),
    settings_from(1, {kOnnxTflite,
                      "ReduceProd",
                      1,
                      0,
                      tflite_reduce_prod_row,
                      {2, 1, "factor from high keep_dims low to zero"}}),
    {kOnnxTflite, "L2Norm", 1, 0, tflite_l2_norm_row, {1, 1, "from"}},
    {kOnnxTflite, "Svdf", 1, 0, tflite_svdf_row, {5, 2, "first from high low rank second to zero"}},
    {kOnnxTflite, "SoftmaxBytes", 1, 0, tflite_softmax_bytes_row, {2, 1, "to"}},
    {kOnnxTflite, "Lookup", 1, 0, tflite_lookup_row, {2, 1, "first"}},
    {kOnnxTflite, "Softmax", 1, 0, tflite_softmax_row, {3, 1, "factor"}},
    {kOnnxTflite,
     "Lstm",
     1,
     0,
     tflite_lstm_row,
     {19, 3, "cell_clip cell_power hidden hidden_zero projection zero"}},
    settings_from(1, {kOnnxTflite,
                      "ResizeBilinear",
                      1,
                      0,
                      tflite_resize_row,
                      {2, 1, "align_corners half_pixel_centers"}}),
    {kOnnxTflite,
     "Detections",
     1,
     0,
     tflite_detections_row,
     {3, 4,
      "detections_per_class h_scale max_classes_per_detection max_detections "
      "nms_iou_threshold nms_score_threshold "
      "num_classes use_regular_nms w_scale x_scale y_scale"}},
    settings_from(2, {kOnnxTflite, "DynamicUpdateSlice", 1, 0, tflite_update_row, {3, 1, ""}}),
};

}  // namespace

std::span<const OnnxRow> onnx_tflite_rows() { return kTfliteRows; }

}  // namespace tandem::onnx
