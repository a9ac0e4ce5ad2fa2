// SPDX-License-Identifier: Apache-2.0
// TFLite's full-integer LSTM of 8-bit inputs, weights and results and 16-bit cells, as the row
// "Lstm". Factors between scales come about as in Prepare() of its kernel, in f32. Zero points go
// into the biases.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Operands, each the first of those in the order of gates: input, forget, cell, output.
constexpr size_t kInput = 1, kState = 5, kPeephole = 9, kBias = 12, kProjection = 16,
                 kProjectionBias = 17, kStateVariable = 18, kCellVariable = 19, kLayerNorm = 20;
constexpr size_t kAllGates = 4, kHidden = 4;  ///< kHidden: of the intermediate tensors

bool has_codes(const TfliteTensor& t, OnnxType type) {
  return t.type == type && t.scales.scale.size() == 1 && t.scales.scale[0] > 0;
}
/// The power of two that a scale is; 0: none.
int power_of(float scale) {
  int power = 0;
  return std::frexp(scale, &power) == 0.5f ? power - 1 : 0;
}

/// Whether operands 1 to 17 that are there are constants of these codes.
bool integer_weights(const TfliteCall& c) {
  for (size_t i = kInput; i <= kProjectionBias; ++i) {
    if (!c.has(i)) continue;
    const bool bias = i >= kBias && i != kProjection, peephole = i >= kPeephole && i < kBias;
    const OnnxType type = bias ? OnnxType::i32 : peephole ? OnnxType::i16 : OnnxType::i8;
    if (!c.is_constant(i) || c.tensor(i).type != type || (!bias && !has_codes(c.tensor(i), type)))
      return false;
  }
  for (size_t g = 1; g < kAllGates; ++g)
    if (!c.has(kInput + g) || !c.has(kState + g) || !c.has(kBias + g)) return false;
  return c.has(kInput) == c.has(kState) && c.has(kInput) == c.has(kBias);
}

/// What the row reads, gate by gate.
struct LstmCodes {
  explicit LstmCodes(TfliteCall& call) : c(call), first(c.has(kInput) ? 0 : 1) {
    const TfliteTensor& like = c.tensor(kInput + 1);
    if (like.shape.size() != 2) c.b.fail("the weight of an LSTM is not a matrix");
    cells = like.shape[0];
  }
  std::string constant(const Tensor& t, OnnxType type) const {
    return c.b.constant("lstm", OnnxValue(contiguous(t), type));
  }
  std::string list(const std::vector<int64_t>& v, const Shape& shape, OnnxType type) const {
    return constant(tandem::tensor(v, shape).to(info_of(type).carrier), type);
  }
  /// Weights of inputs or of states, biases, multipliers and shifts, an entry for each row.
  void add_products(Names& in, size_t at, const TfliteTensor& x, bool bias) const {
    const int64_t zero = x.scales.zero[0];
    std::vector<Tensor> weights, biases;
    std::vector<int64_t> multipliers, shifts;
    for (size_t g = first; g < kAllGates; ++g) {
      const TfliteTensor& w = c.tensor(at + g);
      const Tensor codes = c.constant(at + g).tensor();
      if (codes.dim() != 2 || codes.size(0) != cells)
        c.b.fail(fmt::format("the weight '{}' of an LSTM does not have {} rows", w.name, cells));
      weights.push_back(codes.to(DType::i8));
      biases.push_back(with_zero(codes, -zero, bias ? kBias + g : 0));
      const TfliteFactor f(double{scale_of(w) * scale_of(x) / kGateStep});
      multipliers.insert(multipliers.end(), static_cast<size_t>(cells), f.multiplier);
      shifts.insert(shifts.end(), static_cast<size_t>(cells), f.shift);
    }
    const Shape rows(static_cast<int64_t>(multipliers.size()));
    in.push_back(constant(cat(weights, 0), OnnxType::i8));
    in.push_back(constant(cat(biases, 0), OnnxType::i64));
    in.push_back(list(multipliers, rows, OnnxType::i64));
    in.push_back(list(shifts, rows, OnnxType::i64));
  }
  /// zero * (sums of the rows) + the bias.
  Tensor with_zero(const Tensor& codes, int64_t zero, size_t bias) const {
    const Tensor sums = codes.to(DType::i64).sum({1}) * zero;
    if (bias == 0 || !c.has(bias)) return sums;
    const Tensor b = c.constant(bias).tensor();
    if (b.dim() != 1 || b.size(0) != codes.size(0)) c.b.fail("a bias of an LSTM has another size");
    return sums + b.to(DType::i64);
  }
  void add_peepholes(Names& in) const {
    if (!c.has(kPeephole + 2)) return in.insert(in.end(), 3, ""), void();
    std::vector<Tensor> weights;
    std::vector<int64_t> multipliers, shifts;
    const float step = std::ldexp(1.0f, power_of(scale_of(c.tensor(kCellVariable))));
    for (size_t g = first; g < 3; ++g) {
      const Tensor w = c.constant(kPeephole + g).tensor();
      if (w.dim() != 1 || w.size(0) != cells) c.b.fail("a peephole of an LSTM has another size");
      weights.push_back(w.to(DType::i16));
      const TfliteFactor f(double{step * scale_of(c.tensor(kPeephole + g)) / kGateStep});
      multipliers.push_back(f.multiplier);
      shifts.push_back(f.shift);
    }
    const Shape rows(static_cast<int64_t>(multipliers.size()), 1);
    in.push_back(constant(stack(weights), OnnxType::i16));
    in.push_back(list(multipliers, rows, OnnxType::i64));
    in.push_back(list(shifts, rows, OnnxType::i64));
  }

  static constexpr float kGateStep = 1.0f / 4096;  ///< gates have 3 bits before the point
  TfliteCall& c;
  size_t first;
  int64_t cells;
};

bool is_integer_lstm(const TfliteCall& c) {
  for (size_t i = kLayerNorm; i < kLayerNorm + kAllGates; ++i)
    if (c.has(i)) return false;
  if (!c.has(kCellVariable) || !has_codes(c.tensor(0), OnnxType::i8) ||
      !has_codes(c.result(0), OnnxType::i8) || !has_codes(c.tensor(kStateVariable), OnnxType::i8) ||
      !has_codes(c.tensor(kCellVariable), OnnxType::i16) || !integer_weights(c))
    return false;
  const int power = power_of(scale_of(c.tensor(kCellVariable)));
  if (power < -15 || power > -9 || c.real(2) != 0 || c.tensor(0).shape.size() != 3) return false;
  if (c.op.intermediates.size() <= kHidden || c.op.intermediates[kHidden] < 0) return false;
  const auto hidden = static_cast<size_t>(c.op.intermediates[kHidden]);
  // With a projection TFLite's kernel takes the number of results for that of the cells.
  const bool same_size =
      !c.has(kProjection) || c.tensor(kProjection).shape == c.tensor(kState + 1).shape;
  const bool peepholes = c.has(kPeephole + 1) && (c.has(kPeephole) || !c.has(kInput)) && same_size;
  return c.scope.graph.tensors[hidden].scales.scale.size() == 1 &&
         (!c.has(kPeephole + 2) || peepholes);
}

}  // namespace

bool tflite_lstm_codes(TfliteCall& c) {
  if (!is_integer_lstm(c)) return false;
  const LstmCodes l(c);
  const TfliteTensor &state = c.tensor(kStateVariable), &cell = c.tensor(kCellVariable),
                     &hidden =
                         c.scope.graph.tensors[static_cast<size_t>(c.op.intermediates[kHidden])];
  const bool turn = !c.flag(3);
  const auto turned = [&](const std::string& x) {
    return turn ? c.onnx("Transpose", {x}, {onnx_ints("perm", {1, 0, 2})}) : x;
  };
  Names in{turned(c.x(0))};
  l.add_products(in, kInput, c.tensor(0), true);
  l.add_products(in, kState, state, false);
  in.push_back(c.x(kStateVariable));
  in.push_back(c.x(kCellVariable));
  const Shape all(kLastShort - kFirstShort + 1);
  constexpr int kGateBits = 3, kCellBits = 15;
  const int power = power_of(scale_of(cell));
  in.push_back(l.list(fixed_sigmoid_table(), all, OnnxType::i16));
  in.push_back(l.list(fixed_tanh_table(kGateBits), all, OnnxType::i16));
  in.push_back(l.list(fixed_tanh_table(kCellBits + power), all, OnnxType::i16));
  l.add_peepholes(in);
  const double share = std::ldexp(1.0, -15);
  const TfliteFactor to_hidden(
      double{static_cast<float>(share / double{scale_of(hidden)} * share)});
  // The kernel takes the zero point from what it projects, and adds it to what is the result.
  const int64_t zero = hidden.scales.zero.at(0), hidden_zero = c.has(kProjection) ? -zero : zero;
  OnnxAttributes a{onnx_ints("hidden", {to_hidden.multiplier, to_hidden.shift}),
                   onnx_int("hidden_zero", hidden_zero), onnx_int("cell_power", power),
                   onnx_int("zero", state.scales.zero[0])};
  if (c.real(1) > 0)
    a.push_back(onnx_int("cell_clip",
                         static_cast<int64_t>(std::min(c.real(1) / scale_of(cell), 32767.0f))));
  if (c.has(kProjection)) {
    const Tensor w = c.constant(kProjection).tensor();
    if (w.dim() != 2 || w.size(1) != l.cells)
      c.b.fail("the projection of an LSTM has another size");
    const TfliteFactor f(
        double{scale_of(c.tensor(kProjection)) * scale_of(hidden) / scale_of(state)});
    a.push_back(onnx_ints("projection", {f.multiplier, f.shift}));
    in.push_back(l.constant(w.to(DType::i8), OnnxType::i8));
    in.push_back(l.constant(l.with_zero(w, -hidden_zero, kProjectionBias), OnnxType::i64));
  }
  const Names y = c.many("Lstm", kOnnxTflite, std::move(in), 3, std::move(a));
  c.b.set_value(c.scope, c.op.in.at(kStateVariable), y[1], false);
  c.b.set_value(c.scope, c.op.in.at(kCellVariable), y[2], false);
  c.set_codes(0, turned(y[0]));
  return true;
}

}  // namespace tandem::onnx
