// SPDX-License-Identifier: Apache-2.0
// TFLite's operators of codes that reduce, compare and combine, as rows of the domain "tflite" with
// the factors that Prepare() of its reference kernels has.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"

namespace tandem::onnx {
namespace {

/// Whether the first inputs and the result have codes of one type, of 8 bits or, with `shorts`, 16.
bool alike(const TfliteCall& c, size_t inputs, bool shorts) {
  if (!tflite_of_codes(c, inputs)) return false;
  for (size_t i = 0; i < inputs; ++i)
    if (c.tensor(i).type != c.result(0).type) return false;
  return shorts || c.result(0).type != OnnxType::i16;
}
bool is_byte(const TfliteTensor& t) { return tflite_one_scale(t) && t.type != OnnxType::i16; }

}  // namespace

// What a kernel does with codes, whatever they stand for.
bool tflite_raw_codes(TfliteCall& c) {
  c.row.build(c);
  return true;
}
// The same where there is a kernel of signed codes alone.
bool tflite_raw_signed(TfliteCall& c) {
  return c.has(0) && c.tensor(0).type != OnnxType::u8 && tflite_raw_codes(c);
}
// That of 16 bits alone.
bool tflite_raw_shorts(TfliteCall& c) {
  return c.has(0) && c.tensor(0).type == OnnxType::i16 && tflite_raw_codes(c);
}

// MEAN and SUM: the sum of the codes times a factor that has the number of entries in it.
bool tflite_reduced_codes(TfliteCall& c) {
  if (!alike(c, 1, true) || !c.has(1) || !c.is_constant(1)) return false;
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "factor",
                    TfliteFactor(double{scale_of(c.tensor(0))} / double{scale_of(c.result(0))}));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  a.push_back(onnx_int("keep_dims", c.flag(0)));
  a.push_back(onnx_int("mean", std::string_view(c.row.name) == "MEAN"));
  c.set_codes(0, c.own("Reduce", {c.x(0), c.x(1)}, std::move(a)));
  return true;
}

// A product step by step, each with the same share of the result's scale.
bool tflite_product_of_codes(TfliteCall& c) {
  constexpr int64_t kMostSteps = 256;
  if (!alike(c, 1, true) || c.tensor(0).type == OnnxType::u8 || !c.has(1) || !c.is_constant(1))
    return false;
  const std::vector<int64_t>& shape = c.tensor(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<bool> seen(shape.size());
  int64_t n = 1;
  for (const int64_t axis : c.ints(1)) {
    const int64_t d = axis < 0 ? axis + rank : axis;
    if (d < 0 || d >= rank) c.b.fail(fmt::format("a {} has the axis {}", c.row.name, axis));
    if (seen[static_cast<size_t>(d)]) continue;
    seen[static_cast<size_t>(d)] = true;
    n *= std::min(shape[static_cast<size_t>(d)], kMostSteps + 1);
    if (n < 1 || n > kMostSteps) return false;
  }
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(
      a, "factor",
      TfliteFactor(double{scale_of(c.tensor(0))} /
                   std::pow(double{scale_of(c.result(0))}, 1.0 / static_cast<double>(n))));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  a.push_back(onnx_int("keep_dims", c.flag(0)));
  c.set_codes(0, c.own("ReduceProd", {c.x(0), c.x(1)}, std::move(a)));
  return true;
}

// As ADD, in steps that are finer by 2^7 alone.
bool tflite_squared_codes(TfliteCall& c) {
  if (!alike(c, 2, false)) return false;
  constexpr int64_t kFiner = 7;
  const float x = scale_of(c.tensor(0)), z = scale_of(c.tensor(1)), out = scale_of(c.result(0));
  const double twice = 2.0 * double{std::max(x, z)};
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "a", TfliteFactor(double{x} / twice));
  add_tflite_factor(a, "b", TfliteFactor(double{z} / twice));
  add_tflite_factor(a, "square",
                    TfliteFactor(twice * twice / double{float{1 << (2 * kFiner)} * out}));
  a.push_back(onnx_ints("zeros", {zero_of(c.tensor(0)), zero_of(c.tensor(1))}));
  a.push_back(onnx_int("finer", kFiner));
  c.set_codes(0, c.own("SquaredDifference", {c.x(0), c.x(1)}, std::move(a)));
  return true;
}

bool tflite_prelu_codes(TfliteCall& c) {
  if (!alike(c, 2, false)) return false;
  const float in = scale_of(c.tensor(0)), out = scale_of(c.result(0));
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "factor", TfliteFactor(in / out));
  add_tflite_factor(a, "negative", TfliteFactor(in * scale_of(c.tensor(1)) / out));
  a.push_back(onnx_ints("zeros", {zero_of(c.tensor(0)), zero_of(c.tensor(1))}));
  c.set_codes(0, c.own("PRelu", {c.x(0), c.x(1)}, std::move(a)));
  return true;
}

// Bytes are compared in steps of 1/256, codes of 16 bits as they are.
bool tflite_compared_codes(TfliteCall& c) {
  if (tflite_raw_shorts(c)) return true;
  if (!c.has(0) || !c.has(1) || !is_byte(c.tensor(0)) || !is_byte(c.tensor(1))) return false;
  Names in;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const TfliteFactor f(double{scale_of(c.tensor(i))});
    if (f.shift > 0) return false;
    OnnxAttributes a{onnx_int("from", zero_of(c.tensor(i)))};
    add_tflite_factor(a, "factor", f);
    in.push_back(c.own("Steps", {c.x(i)}, std::move(a)));
  }
  c.set_codes(0, c.tf(c.row.node, std::move(in)));
  return true;
}

// exp of differences to the largest input by a table, from 0 on; what is too small has no share.
bool tflite_softmax_bytes(TfliteCall& c) {
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  if (!tflite_of_codes(c, 1) || x.type == OnnxType::i16 || x.shape.empty()) return false;
  const bool wide = y.type == OnnxType::i16;
  const TfliteRange r = tflite_codes_of(y.type);
  const float step = wide ? 0x1p-15f : 0x1p-8f;
  if ((!wide && y.type != x.type) || zero_of(y) != (wide ? 0 : r.low) ||
      std::abs(scale_of(y) - step) > 0.001f * step)
    return false;
  constexpr int kBefore = 5, kAfter = 26;
  const double factor = double{c.real(0)} * double{scale_of(x)} * (1 << kAfter);
  if (!(factor > 1 && factor < 1 << 30)) return false;
  const TfliteFactor f(factor);
  TfliteFactor whole(0);
  whole.multiplier = f.multiplier;
  const double most = std::floor(((1 << kBefore) - 1.0) * (1 << kAfter) /
                                 static_cast<double>(int64_t{1} << f.shift));
  std::vector<int64_t> table;
  for (int64_t d = 0; d < 256; ++d)
    table.push_back(static_cast<double>(d) > most
                        ? 0
                        : fixed_exp(fixed_scaled(-d * (int64_t{1} << f.shift), whole)));
  c.set_codes(0, c.own("SoftmaxBytes", {c.x(0), tflite_code_list(c, table, OnnxType::i32)},
                       {onnx_int("to", static_cast<int64_t>(y.type))}));
  return true;
}

// Lengths by the inverse of a root: the result has steps of 1/128.
bool tflite_unit_codes(TfliteCall& c) {
  if (!alike(c, 1, false) || c.tensor(0).shape.empty() || tflite_activation(c) != 0) return false;
  const TfliteTensor& y = c.result(0);
  if (scale_of(y) != 0x1p-7f || zero_of(y) != (y.type == OnnxType::u8 ? 128 : 0)) return false;
  c.set_codes(0, c.own("L2Norm", {c.x(0)}, {onnx_int("from", zero_of(c.tensor(0)))}));
  return true;
}

// SVDF of int8 with a memory of 16 bits. The kernel leaves out the activation.
bool tflite_memory_codes(TfliteCall& c) {
  constexpr size_t kWeight = 1, kTime = 2, kBias = 3, kMemory = 4;
  if (!alike(c, 1, false) || c.tensor(0).type != OnnxType::i8) return false;
  const auto symmetric = [&](size_t i) {
    return c.has(i) && tflite_one_scale(c.tensor(i)) && zero_of(c.tensor(i)) == 0;
  };
  if (!symmetric(kWeight) || !symmetric(kTime) || !symmetric(kMemory) ||
      c.tensor(kMemory).type != OnnxType::i16 || c.tensor(kWeight).type != OnnxType::i8 ||
      (c.has(kBias) && c.tensor(kBias).type != OnnxType::i32))
    return false;
  const float memory = scale_of(c.tensor(kMemory));
  OnnxAttributes a = tflite_result_codes(c, 0);
  add_tflite_factor(a, "first",
                    TfliteFactor(scale_of(c.tensor(0)) * scale_of(c.tensor(kWeight)) / memory));
  add_tflite_factor(a, "second",
                    TfliteFactor(memory * scale_of(c.tensor(kTime)) / scale_of(c.result(0))));
  a.push_back(onnx_int("from", zero_of(c.tensor(0))));
  a.push_back(onnx_int("rank", std::max<int64_t>(1, c.option(0))));
  const Names out =
      c.many("Svdf", kOnnxTflite,
             {c.x(0), c.x(kWeight), c.x(kTime), c.x(kMemory), c.has(kBias) ? c.x(kBias) : ""}, 2,
             std::move(a));
  c.set_codes(0, out[0]);
  c.b.set_value(c.scope, c.op.in[kMemory], out[1], false);
  return true;
}

}  // namespace tandem::onnx
