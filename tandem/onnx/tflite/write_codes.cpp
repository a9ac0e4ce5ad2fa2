// SPDX-License-Identifier: Apache-2.0
// Quantised networks: DequantizeLinear, a layer, bounds, QuantizeLinear become one operator of
// codes. TFLite wants codes of activations to be int8: u8 are shifted by 128. What stands between a
// dequantised value and a rounded one and has no such form works with floats.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

TfliteShape channels_last_shape(const TfliteShape& s) { return {s[0], s[2], s[3], s[1]}; }

/// The rounding that ends a layer: the codes that it gives, and a fused activation.
struct Rounded {
  std::string codes;
  TfliteScales scales;
  int8_t activation = 0;
  std::vector<const OnnxNode*> nodes;  ///< that the operator stands for
};

/// A bound that a node sets: "Max" with 0, "Min" with 6, or what Relu and Clip mean. The tighter
/// one of two holds; false: one of them is not known.
bool adds_bound(TfliteWriter& w, const OnnxNode& n, const std::string& value, float& low,
                float& high) {
  const auto number = [&](size_t i, float otherwise) {
    if (i >= n.inputs.size() || n.inputs[i].empty()) return otherwise;
    return w.is_known(n.inputs[i]) && w.tensor(n.inputs[i]).numel() == 1
               ? w.tensor(n.inputs[i]).reshape({}).item<float>()
               : NAN;
  };
  float least = -INFINITY, most = INFINITY;
  if (n.op == "Relu") {
    least = 0;
  } else if (n.op == "Clip") {
    least = number(1, least);
    most = number(2, most);
  } else if ((n.op == "Max" || n.op == "Min") && n.inputs.size() == 2) {
    (n.op == "Max" ? least : most) = number(n.inputs[0] == value ? 1 : 0, NAN);
  } else {
    return false;
  }
  low = std::max(low, least);
  high = std::min(high, most);
  return !std::isnan(least) && !std::isnan(most);
}

std::optional<Rounded> rounding_of(TfliteWriter& w, const std::string& value) {
  Rounded r;
  float low = -INFINITY, high = INFINITY;
  std::string at = value;
  for (int k = 0; k < 4; ++k) {
    const OnnxNode* n = w.only_reader(at);
    if (!n) return {};
    r.nodes.push_back(n);
    if (n->op == "QuantizeLinear") {
      const auto scales = w.scales_of(*n);
      if (!scales) return {};
      r.codes = n->outputs[0];
      r.scales = *scales;
      const bool plain = std::isinf(low) && std::isinf(high);
      if (!plain && !(low == 0 && (std::isinf(high) || high == 6))) return {};
      // What no code lies beyond needs no bound.
      const double zero = static_cast<double>(scales->zero[0]);
      const bool over = !plain && high / double{scales->scale[0]} + zero < 127;
      r.activation = plain ? 0 : over ? 3 : zero > -128 ? 1 : 0;
      return r;
    }
    if (!adds_bound(w, *n, at, low, high)) return {};
    at = n->outputs[0];
  }
  return {};
}

void set_rounded(TfliteWriter& w, const Rounded& r, int tensor, bool last) {
  for (const OnnxNode* n : r.nodes) w.leave_out(n);
  w.scaled(tensor, r.scales);
  w.set(r.codes, tensor, last);
}

/// A tensor of codes in other scales.
int rescaled(TfliteWriter& w, int tensor, const TfliteScales& to) {
  if (w.scales(tensor) == to) return tensor;
  const int t = w.op(114, {tensor}, w.shape_of(tensor), OnnxType::i8, {89});
  w.scaled(t, to);
  return t;
}

/// A weight's codes, their dimensions in another order, and the bias in sums of products.
struct Weight {
  int codes = -1, bias = -1;
};
std::optional<Weight> weight_of(const TfliteNode& n, const TfliteScales& x,
                                const std::vector<int64_t>& order, const std::string& offset) {
  const auto stored = n.w.stored_codes(n.in(1));
  if (!stored || stored->codes.dtype() != DType::i8 || stored->scales.axis != 0) return {};
  for (const int64_t z : stored->scales.zero)
    if (z != 0) return {};
  const int64_t channels = stored->codes.size(0);
  if (!offset.empty() && (!n.w.is_known(offset) || n.w.tensor(offset).numel() != channels))
    return {};
  Weight out;
  TfliteScales s = stored->scales, sums;
  s.axis = std::find(order.begin(), order.end(), 0) - order.begin();
  out.codes = n.w.constant(contiguous(permute(stored->codes, IntList(order))));
  n.w.scaled(out.codes, s);
  for (const float v : s.scale) sums.scale.push_back(x.scale[0] * v);
  sums.zero.assign(sums.scale.size(), 0);
  const Tensor step = tandem::tensor(sums.scale).to(DType::f64);
  const Tensor bias = offset.empty() ? zeros(Shape(channels), DType::f64)
                                     : n.w.tensor(offset).reshape({-1}).to(DType::f64);
  constexpr double kMost = 2147483647;
  out.bias = n.w.constant(clamp(round(bias / step), -kMost, kMost).to(DType::i32));
  n.w.scaled(out.bias, sums);
  return out;
}

bool conv_codes(TfliteNode& n) {
  const auto x = n.w.codes_of(n.in(0));
  const auto r = rounding_of(n.w, n.out());
  if (!x || !r || n.w.shape(n.in(0)).size() != 4) return false;
  const TfliteShape shape = n.w.shape(n.in(1));
  const int64_t group = n.attr("group", 1), c = n.w.shape(n.in(0))[1];
  const bool depthwise = group == c && group > 1;
  if (group > 1 && !depthwise) return false;
  const auto w = weight_of(
      n, x->scales, depthwise ? std::vector<int64_t>{1, 2, 3, 0} : std::vector<int64_t>{0, 2, 3, 1},
      n.has(2) ? n.in(2) : "");
  if (!w) return false;
  TfliteOptions options;
  const int in = tflite_conv_window(n, n.w.last(x->codes), {shape[2], shape[3]}, depthwise,
                                    shape[0] / c, static_cast<float>(x->scales.zero[0]), options);
  options.version = depthwise ? 3 : 3;
  options.activation = depthwise ? 4 : 3;
  const int t = n.w.op(depthwise ? 4 : 3, {in, w->codes, w->bias},
                       channels_last_shape(n.w.shape(n.out())), OnnxType::i8, std::move(options));
  n.w.fuse_into(t, r->activation);
  set_rounded(n.w, *r, t, true);
  return true;
}

bool matrix_codes(TfliteNode& n) {
  const auto x = n.w.codes_of(n.in(0));
  if (!x || n.attr("transA", 0) || !n.attr("transB", 0)) return false;
  if (n.number("alpha", 1) != 1 || n.number("beta", 1) != 1) return false;
  const WrittenBias bias = tflite_bias(n, n.w.shape(n.out()).back());
  const auto r = rounding_of(n.w, bias.result);
  if (!r || (n.has(2) && bias.name.empty())) return false;
  const auto w = weight_of(n, x->scales, {0, 1}, bias.name);
  if (!w) return false;
  const bool each = n.w.scales(w->codes).scale.size() > 1;
  const int t = n.w.op(9, {n.w.plain(x->codes), w->codes, w->bias}, n.w.shape(n.out()),
                       OnnxType::i8, {8, {}, 0, each ? 12 : 4});
  n.w.fuse_into(t, r->activation);
  if (bias.adds) n.w.leave_out(bias.adds);
  set_rounded(n.w, *r, t, false);
  return true;
}

// Two dequantised values of one shape, or one that spreads.
bool two_codes(TfliteNode& n) {
  const auto a = n.w.codes_of(n.in(0)), b = n.w.codes_of(n.in(1));
  if (!a || !b) return false;
  const auto r = rounding_of(n.w, n.out());
  if (!r) return false;
  const TfliteShape s = n.w.shape(n.out());
  const bool last = s.size() == 4 && n.w.shape(n.in(0)).size() == 4 &&
                    n.w.shape(n.in(1)).size() == 4 &&
                    (n.w.prefers_last(a->codes) || n.w.prefers_last(b->codes));
  const auto at = [&](const std::string& name) { return last ? n.w.last(name) : n.w.plain(name); };
  const bool add = n.n.op == "Add";
  const int t =
      n.w.op(add ? 0 : 18, {at(a->codes), at(b->codes)}, last ? channels_last_shape(s) : s,
             OnnxType::i8, {static_cast<uint8_t>(add ? 11 : 21), {}, 0, 2});
  n.w.fuse_into(t, r->activation);
  set_rounded(n.w, *r, t, last);
  return true;
}

// What moves codes, or takes means of them in their own scale.
bool pool_codes(TfliteNode& n) {
  const auto x = n.w.codes_of(n.in(0));
  const auto r = rounding_of(n.w, n.out());
  if (!x || !r || r->activation != 0 || n.w.shape(n.in(0)).size() != 4) return false;
  const bool largest = n.n.op == "MaxPool";
  TfliteOptions options;
  int in = -1;
  if (!tflite_pool_window(n, x->codes, largest, options, in)) return false;
  options.version = 2;
  const int t = n.w.op(largest ? 17 : 1, {in}, channels_last_shape(n.w.shape(n.out())),
                       OnnxType::i8, std::move(options));
  n.w.scaled(t, x->scales);
  set_rounded(n.w, *r, rescaled(n.w, t, r->scales), true);
  return true;
}
bool global_codes(TfliteNode& n) {
  const auto x = n.w.codes_of(n.in(0));
  const auto r = rounding_of(n.w, n.out());
  const TfliteShape s = n.w.shape(n.in(0));
  if (!x || !r || r->activation != 0 || s.size() != 4) return false;
  TfliteOptions o{27, {}, -1, 2};
  o.fields.add<uint8_t>(0, 1);
  const int t = n.w.op(40, {n.w.last(x->codes), n.w.constant({1, 2})}, {s[0], 1, 1, s[1]},
                       OnnxType::i8, std::move(o));
  set_rounded(n.w, *r, t, true);
  return true;
}
bool reshaped_codes(TfliteNode& n) {
  const auto x = n.w.codes_of(n.in(0));
  const auto r = rounding_of(n.w, n.out());
  if (!x || !r || r->activation != 0) return false;
  const int t = n.w.reshaped(n.w.plain(x->codes), n.w.shape(n.out()));
  set_rounded(n.w, *r, rescaled(n.w, t, r->scales), false);
  return true;
}
bool concat_codes(TfliteNode& n) {
  const auto r = rounding_of(n.w, n.out());
  const TfliteShape s = n.w.shape(n.out());
  if (!r || r->activation != 0) return false;
  bool last = false;
  for (const std::string& i : n.n.inputs) {
    const auto x = n.w.codes_of(i);
    if (!x) return false;
    last |= n.w.prefers_last(x->codes);
  }
  last = last && s.size() == 4;
  std::vector<int> in;
  for (const std::string& i : n.n.inputs) {
    const std::string codes = n.w.codes_of(i)->codes;
    in.push_back(rescaled(n.w, last ? n.w.last(codes) : n.w.plain(codes), r->scales));
  }
  constexpr int32_t kTurned[] = {0, 3, 1, 2};
  const auto axis = static_cast<int32_t>(n.axis(n.attr("axis", 0)));
  TfliteOptions o{10, {}, -1, 2};
  o.fields.add<int32_t>(0, last ? kTurned[axis] : axis);
  const int t =
      n.w.op(2, std::move(in), last ? channels_last_shape(s) : s, OnnxType::i8, std::move(o));
  set_rounded(n.w, *r, t, last);
  return true;
}

// ---- between codes and numbers

void write_quantize(TfliteNode& n) {
  const auto scales = n.w.scales_of(n.n);
  if (!scales) n.w.lacks(n.n, "such rounding");
  const bool last = n.w.prefers_last(n.in(0));
  const int x = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  const int t = n.w.op(114, {x}, n.w.shape_of(x), OnnxType::i8, {89});
  n.w.scaled(t, *scales);
  n.w.set(n.out(), t, last);
}
void write_dequantize(TfliteNode& n) {
  const auto scales = n.w.scales_of(n.n);
  if (!scales) n.w.lacks(n.n, "such scales");
  n.w.stands_for(n.out(), n.in(0));
}

}  // namespace

bool write_as_codes(TfliteNode& n) {
  struct Row {
    const char* op;
    bool (*write)(TfliteNode&);
  };
  static constexpr Row kRows[] = {{"Conv", conv_codes},
                                  {"Gemm", matrix_codes},
                                  {"Add", two_codes},
                                  {"Mul", two_codes},
                                  {"MaxPool", pool_codes},
                                  {"AveragePool", pool_codes},
                                  {"GlobalAveragePool", global_codes},
                                  {"Reshape", reshaped_codes},
                                  {"Flatten", reshaped_codes},
                                  {"Squeeze", reshaped_codes},
                                  {"Unsqueeze", reshaped_codes},
                                  {"Concat", concat_codes}};
  for (const Row& r : kRows)
    if (n.n.op == r.op) return r.write(n);
  return false;
}

std::vector<TfliteWriteRow> tflite_code_writes() {
  return {{"QuantizeLinear", write_quantize}, {"DequantizeLinear", write_dequantize}};
}

}  // namespace tandem::onnx
