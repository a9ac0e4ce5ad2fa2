// SPDX-License-Identifier: Apache-2.0
// TFLite's operators that compute codes from codes, as its reference kernels do: factors between
// scales are numbers of 31 bits with a power of two, and products with them are rounded twice.
// Prepare() of the kernels says how each factor comes about, and in which precision.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

TfliteFactor::TfliteFactor(double factor) {
  if (factor == 0 || !std::isfinite(factor)) return;
  int power = 0;
  const double part = std::frexp(factor, &power);
  multiplier = std::llround(std::ldexp(part, 31));
  shift = power;
  if (std::abs(multiplier) == int64_t{1} << 31) {
    multiplier /= 2;
    ++shift;
  }
  if (shift < -31) multiplier = shift = 0;
  shift = std::min<int64_t>(shift, 30);
}

TfliteRange tflite_codes_of(OnnxType type) {
  const OnnxTypeInfo& info = info_of(type);
  const int64_t span = int64_t{1} << info.bits;
  return info.is_signed ? TfliteRange{-span / 2, span / 2 - 1} : TfliteRange{0, span - 1};
}

TfliteRange tflite_range(const TfliteCall& c, const TfliteTensor& t, int64_t activation) {
  TfliteRange r = tflite_codes_of(t.type);
  if (activation != 0 && (t.scales.scale.size() != 1 || !(t.scales.scale[0] > 0)))
    c.b.fail(fmt::format(
        "tensor '{}' has {}, and a {} bounds its codes: these need a scale above 0", t.name,
        t.scales.scale.size() == 1 ? fmt::format("the scale {}", t.scales.scale[0])
                                   : fmt::format("{} scales", t.scales.scale.size()),
        c.row.name));
  const auto code = [&](float v) {
    const float q = std::round(v / t.scales.scale[0]);
    const float bounded = std::clamp(q, -1e6f, 1e6f);
    return t.scales.zero[0] + static_cast<int64_t>(bounded);
  };
  const auto bounds = [&](float low, float high) {
    r.low = std::clamp(code(low), r.low, r.high);
    if (high > 0) r.high = std::clamp(code(high), r.low, r.high);
  };
  switch (activation) {
    case 0:
      break;
    case 1:
      bounds(0, 0);
      break;
    case 2:
      bounds(-1, 1);
      break;
    case 3:
      bounds(0, 6);
      break;
    case kTfliteZeroToOne:
      bounds(0, 1);
      break;
    default:
      c.lacks(fmt::format("the fused activation {} of codes", activation));
  }
  return r;
}

bool tflite_one_scale(const TfliteTensor& t) {
  if (!t.is_quantised() || t.scales.scale.size() != 1 || !(t.scales.scale[0] > 0)) return false;
  if (t.type != OnnxType::i8 && t.type != OnnxType::u8 && t.type != OnnxType::i16) return false;
  const TfliteRange r = tflite_codes_of(t.type);
  return zero_of(t) >= r.low && zero_of(t) <= r.high;
}
bool tflite_of_codes(const TfliteCall& c, size_t inputs) {
  for (size_t i = 0; i < inputs; ++i)
    if (!c.has(i) || !tflite_one_scale(c.tensor(i))) return false;
  return !c.op.out.empty() && c.op.out[0] >= 0 && tflite_one_scale(c.result(0));
}
OnnxAttributes tflite_result_codes(const TfliteCall& c, int64_t activation) {
  const TfliteTensor& t = c.result(0);
  const TfliteRange r = tflite_range(c, t, activation);
  return {onnx_int("zero", zero_of(t)), onnx_int("low", r.low), onnx_int("high", r.high),
          onnx_int("to", static_cast<int64_t>(t.type))};
}
void add_tflite_factor(OnnxAttributes& a, const char* name, const TfliteFactor& f) {
  a.push_back(onnx_ints(name, {f.multiplier, f.shift}));
}
int64_t tflite_activation(const TfliteCall& c) {
  return c.row.activation < 0 ? 0 : c.small(c.row.activation);
}
std::string tflite_code_list(const TfliteCall& c, const std::vector<int64_t>& v, OnnxType type) {
  const Tensor t = tandem::tensor(v, Shape(static_cast<int64_t>(v.size())));
  const OnnxValue value(t.to(info_of(type).carrier), type);
  return c.b.constant("codes", value);
}

namespace {

/// Which inputs an operator's x, weight and bias are.
struct ProductPlaces {
  size_t x = 0, w = 1, bias = 2;
};

/// Inputs that the rows of sums of products share: x, its zero point, w, its zero points, the bias,
/// multipliers and shifts, one or one for each channel.
Names product_inputs(const TfliteCall& c, const std::vector<int64_t>& order,
                     const std::vector<TfliteFactor>& factors, ProductPlaces at = {}) {
  const TfliteTensor &x = c.tensor(at.x), &w = c.tensor(at.w);
  std::vector<int64_t> multipliers, shifts;
  for (const TfliteFactor& f : factors) {
    multipliers.push_back(f.multiplier);
    shifts.push_back(f.shift);
  }
  const bool any_zero =
      std::any_of(w.scales.zero.begin(), w.scales.zero.end(), [](int64_t z) { return z != 0; });
  const OnnxType type = w.type == OnnxType::u8 ? OnnxType::u8 : OnnxType::i8;
  Tensor filter = c.constant(at.w).tensor();
  if (filter.dim() != static_cast<int>(order.size()))
    c.b.fail(fmt::format("a {} has a weight of {} dimensions", c.row.name, filter.dim()));
  filter = contiguous(permute(filter, IntList(order)));
  return {c.x(at.x),
          c.number(static_cast<double>(zero_of(x)), x.type),
          c.b.constant(w.name, OnnxValue(filter, type)),
          any_zero
              ? tflite_code_list(c,
                                 w.scales.zero.size() == 1 ? std::vector<int64_t>{w.scales.zero[0]}
                                                           : w.scales.zero,
                                 type)
              : std::string(),
          c.has(at.bias) ? c.x(at.bias) : std::string(),
          tflite_code_list(c, multipliers, OnnxType::i64),
          tflite_code_list(c, shifts, OnnxType::i64)};
}

/// Whether the weight is a constant of bytes or half bytes whose scales are along `axis`.
bool plain_weight(const TfliteCall& c, int64_t axis, ProductPlaces at = {}) {
  if (!tflite_of_codes(c, 0) || !c.has(at.x) || !tflite_one_scale(c.tensor(at.x))) return false;
  if (!c.has(at.w) || !c.is_constant(at.w)) return false;
  const TfliteTensor& w = c.tensor(at.w);
  if (!w.is_quantised() || w.type == OnnxType::i16) return false;
  if (c.has(at.bias) &&
      (!c.is_constant(at.bias) || is_floating(c.constant(at.bias).tensor().dtype())))
    return false;
  return w.scales.scale.size() == 1 || w.scales.axis == axis;
}

/// From sums of products to the result's codes, for each scale of the weight.
std::vector<TfliteFactor> channel_factors(const TfliteCall& c, ProductPlaces at = {}) {
  std::vector<TfliteFactor> factors;
  const double in = scale_of(c.tensor(at.x)), out = scale_of(c.result(0));
  for (const float s : c.tensor(at.w).scales.scale) factors.emplace_back(in * double{s} / out);
  return factors;
}

}  // namespace

bool tflite_conv_codes(TfliteCall& c) {
  constexpr int kDepthwise = 4;
  const bool depthwise = c.row.code == kDepthwise;
  if (!plain_weight(c, depthwise ? 3 : 0)) return false;
  OnnxAttributes a = tflite_result_codes(c, tflite_activation(c));
  for (OnnxAttribute& w : tflite_window(c, 1, depthwise ? 5 : 4, tflite_groups(c)))
    a.push_back(std::move(w));
  const std::vector<int64_t> order =
      depthwise ? std::vector<int64_t>{3, 0, 1, 2} : std::vector<int64_t>{0, 3, 1, 2};
  c.set_codes(0, c.own("Conv", product_inputs(c, order, channel_factors(c)), std::move(a)));
  return true;
}

bool tflite_matrix_codes(TfliteCall& c) {
  if (!plain_weight(c, 0) || c.small(1) != 0) return false;
  std::vector<TfliteFactor> factors;
  const std::vector<float>& scales = c.tensor(1).scales.scale;
  const float in = scale_of(c.tensor(0)), out = scale_of(c.result(0));
  for (const float s : scales)
    factors.emplace_back(scales.size() == 1 ? double{in * s} / double{out}
                                            : double{in} * double{s} / double{out});
  Names inputs = product_inputs(c, {1, 0}, factors);
  const std::vector<int64_t>& w = c.tensor(1).shape;
  if (w.size() != 2 || w[1] < 1) c.b.fail("a FULLY_CONNECTED has no matrix");
  if (!c.flag(2)) inputs[0] = c.tf("Reshape", {inputs[0], c.list({-1, w[1]})});
  c.set_codes(0, c.own("MatMul", std::move(inputs), tflite_result_codes(c, tflite_activation(c))));
  return true;
}

// Both terms in steps of a scale that is finer than either by 2^20 (2^15 for 16 bits).
bool tflite_sum_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 2)) return false;
  const float a = scale_of(c.tensor(0)), b = scale_of(c.tensor(1));
  const double twice = 2.0 * double{std::max(a, b)};
  const int64_t finer = c.result(0).type == OnnxType::i16 ? 15 : 20;
  OnnxAttributes all = tflite_result_codes(c, tflite_activation(c));
  add_tflite_factor(all, "a", TfliteFactor(double{a} / twice));
  add_tflite_factor(all, "b", TfliteFactor(double{b} / twice));
  add_tflite_factor(all, "sum",
                    TfliteFactor(twice / (std::ldexp(1.0, static_cast<int>(finer)) *
                                          double{scale_of(c.result(0))})));
  all.push_back(onnx_ints("zeros", {zero_of(c.tensor(0)), zero_of(c.tensor(1))}));
  all.push_back(onnx_int("finer", finer));
  c.set_codes(0, c.own(c.row.code == 0 ? "Add" : "Sub", {c.x(0), c.x(1)}, std::move(all)));
  return true;
}

bool tflite_product_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 2)) return false;
  const float factor = scale_of(c.tensor(0)) * scale_of(c.tensor(1)) / scale_of(c.result(0));
  OnnxAttributes a = tflite_result_codes(c, tflite_activation(c));
  add_tflite_factor(a, "product", TfliteFactor(factor));
  a.push_back(onnx_ints("zeros", {zero_of(c.tensor(0)), zero_of(c.tensor(1))}));
  c.set_codes(0, c.own("Mul", {c.x(0), c.x(1)}, std::move(a)));
  return true;
}

// The mean of the codes themselves: kernels take their scales to be the same.
bool tflite_average_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 1)) return false;
  OnnxAttributes a = tflite_result_codes(c, tflite_activation(c));
  a.push_back(onnx_ints("kernel_shape", {c.option(4), c.option(3)}));
  a.push_back(onnx_ints("strides", {c.option(2), c.option(1)}));
  a.push_back(
      onnx_text("auto_pad", std::string_view(c.padding(0)) == "SAME" ? "SAME_UPPER" : "VALID"));
  c.set_codes(0, c.own("AveragePool", {c.x(0)}, std::move(a)));
  return true;
}

// To other codes, within the bounds of an activation: QUANTIZE and the RELUs.
bool tflite_rescaled_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 1)) return false;
  const std::string_view name = c.row.name;
  const int64_t activation = name == "RELU"           ? 1
                             : name == "RELU_N1_TO_1" ? 2
                             : name == "RELU6"        ? 3
                             : name == "RELU_0_TO_1"  ? kTfliteZeroToOne
                                                      : 0;
  OnnxAttributes a = tflite_result_codes(c, activation);
  const float in = scale_of(c.tensor(0)), out = scale_of(c.result(0));
  add_tflite_factor(a, "factor", TfliteFactor(activation == 0 ? double{in} / out : in / out));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  c.set_codes(0, c.own("Rescale", {c.x(0)}, std::move(a)));
  return true;
}

bool tflite_leaky_codes(TfliteCall& c) {
  const float alpha = c.real(0);
  if (!tflite_of_codes(c, 1) || !std::isfinite(alpha)) return false;
  const float in = scale_of(c.tensor(0)), out = scale_of(c.result(0));
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "factor", TfliteFactor(in / out));
  add_tflite_factor(a, "negative", TfliteFactor(in * alpha / out));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  c.set_codes(0, c.own("Rescale", {c.x(0)}, std::move(a)));
  return true;
}

bool tflite_absolute_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 1)) return false;
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "factor", TfliteFactor(scale_of(c.tensor(0)) / scale_of(c.result(0))));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  a.push_back(onnx_int("absolute", 1));
  c.set_codes(0, c.own("Rescale", {c.x(0)}, std::move(a)));
  return true;
}

bool tflite_transposed_codes(TfliteCall& c) {
  const ProductPlaces at{2, 1, 3};
  if (!plain_weight(c, 0, at)) return false;
  OnnxAttributes a = tflite_result_codes(c, tflite_activation(c));
  a.push_back(onnx_ints("strides", {1, c.option(2), c.option(1), 1}));
  a.push_back(onnx_text("padding", c.padding(0)));
  Names inputs = product_inputs(c, {1, 2, 0, 3}, channel_factors(c, at), at);
  inputs.push_back(c.x(0));
  c.set_codes(0, c.own("ConvTranspose", std::move(inputs), std::move(a)));
  return true;
}

bool tflite_batch_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 2)) return false;
  const float a = scale_of(c.tensor(0)), b = scale_of(c.tensor(1));
  OnnxAttributes all = tflite_result_codes(c, 0);
  add_tflite_factor(all, "product", TfliteFactor(double{a * b} / double{scale_of(c.result(0))}));
  all.push_back(onnx_ints("zeros", {zero_of(c.tensor(0)), zero_of(c.tensor(1))}));
  all.push_back(onnx_int("adj_x", c.flag(0)));
  all.push_back(onnx_int("adj_y", c.flag(1)));
  c.set_codes(0, c.own("BatchMatMul", {c.x(0), c.x(1)}, std::move(all)));
  return true;
}

bool tflite_resized_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 1) || !(c.tensor(0).scales == c.result(0).scales)) return false;
  c.set_codes(
      0, c.own("ResizeBilinear", {c.x(0), c.x(1)},
               {onnx_int("align_corners", c.flag(2)), onnx_int("half_pixel_centers", c.flag(3))}));
  return true;
}

namespace {

/// A factor of 15 bits and a power of two.
struct ShortFactor {
  explicit ShortFactor(double factor) {
    const TfliteFactor f(factor);
    multiplier = std::min<int64_t>((f.multiplier + (1 << 15)) >> 16, 32767);
    shift = f.shift;
  }
  int64_t multiplier, shift;
};
int64_t short_of(int64_t v) { return std::clamp<int64_t>(v, -32768, 32767); }
int64_t rounded_product(int64_t a, int64_t b) { return short_of((a * b + (1 << 14)) >> 15); }
int64_t rounded_halves_away(int64_t v, int64_t bits) {
  if (bits <= 0) return v;
  if (bits > 31) return 0;
  return (v + (int64_t{1} << (bits - 1)) - (v < 0 ? 1 : 0)) >> bits;
}

// x * relu6(x + 3) / 6 in 16 bits: x in 1/128 of the input's steps, relu6(x + 3) / 6 in 1/32768.
int64_t hard_swish_code(int64_t x, const ShortFactor& out, const ShortFactor& gate) {
  const int64_t fine = short_of(x * 128), scaled = rounded_product(fine, out.multiplier);
  int64_t g = fine;
  if (gate.shift > 0) g = short_of(g << std::min<int64_t>(gate.shift - 1, 16));
  g = rounded_product(g, gate.multiplier);
  if (gate.shift > 0) g = short_of(g * 2);
  if (gate.shift < 0) g = rounded_halves_away(g, -gate.shift);
  g = (g + (1 << 15)) >> 1;
  return rounded_halves_away(g * scaled / (1 << 15), -out.shift);
}

}  // namespace

// Of 256 codes: a table.
bool tflite_hard_swish_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 1)) return false;
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  if (x.type == OnnxType::i16 || y.type != x.type) return false;
  const float fine = (1.0f / 128.0f) * scale_of(x);
  const ShortFactor out(double{fine / scale_of(y)}), gate(double{fine / (3.0f / 32768.0f)});
  if (out.shift > 0) return false;
  const TfliteRange r = tflite_codes_of(x.type);
  std::vector<int64_t> table;
  for (int64_t code = r.low; code <= r.high; ++code)
    table.push_back(
        std::clamp(zero_of(y) + hard_swish_code(code - zero_of(x), out, gate), r.low, r.high));
  c.set_codes(
      0, c.own("Lookup", {c.x(0), tflite_code_list(c, table, y.type)}, {onnx_int("first", r.low)}));
  return true;
}

}  // namespace tandem::onnx
