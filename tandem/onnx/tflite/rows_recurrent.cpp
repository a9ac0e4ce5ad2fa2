// SPDX-License-Identifier: Apache-2.0
// The row "Lstm" of the domain "tflite": 8-bit inputs, weights and results, 16-bit gates and cells,
// with the roundings of TFLite's reference kernel. Gates stand in the order input, forget, cell,
// output; without an input gate it is what the forget gate leaves.
#include <tuple>
#include <utility>

#include "tandem/grad/control_flow.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

Tensor short_bounded(const Tensor& t) { return clamp(t, kFirstShort, kLastShort); }
Tensor looked_up(const Tensor& table, const Tensor& x) {
  return tflite_entries(table, x, kFirstShort).to(DType::i64);
}
/// v / 2^bits, halves away from zero.
Tensor divided(const Tensor& v, int64_t bits) {
  const int64_t half = bits > 0 ? int64_t{1} << (bits - 1) : 0;
  return bitwise_right_shift(v + half - (v < 0).to(DType::i64) * (bits > 0 ? 1 : 0), bits);
}

/// The inputs of the row.
enum In : size_t {
  kX,
  kInput,
  kInputBias,
  kInputMultiplier,
  kInputShift,
  kState,
  kStateBias,
  kStateMultiplier,
  kStateShift,
  kFirstState,
  kFirstCell,
  kSigmoid,
  kTanh,
  kCellTanh,
  kPeephole,
  kPeepMultiplier,
  kPeepShift,
  kProjection,
  kProjectionBias
};

/// A layer of such gates.
struct IntegerLstm {
  explicit IntegerLstm(OnnxCall& call)
      : c(call),
        cells(c.x(kFirstCell).size(1)),
        gates(c.x(kInput).size(0) / std::max<int64_t>(cells, 1)),
        hidden(c.attr_ints("hidden", {0, 0})),
        product(c.attr_ints("projection", {0, 0})) {
    TD_CHECK((gates == 3 || gates == 4) && c.x(kInput).size(0) == gates * cells &&
                 is_tflite_factor(hidden) && is_tflite_factor(product) && power() >= -15 &&
                 power() <= -9,
             Value, "its gates or factors are none");
  }
  int64_t power() const { return c.attr("cell_power", -11); }
  Tensor gate(const Tensor& all, int64_t g) const {
    return all.narrow(-1, (g - 4 + gates) * cells, cells);
  }
  /// What a matrix of weights adds to the gates.
  Tensor products(const Tensor& codes, size_t at) const {
    const Tensor sums = matmul_integer(codes, contiguous(c.x(at).t())).to(DType::i64) + c.x(at + 1);
    return tflite_times_factor(sums, c.x(at + 2), c.x(at + 3));
  }
  /// Sums for gates, with what the cell adds to them. Rows of peepholes are those of the input
  /// gate, if there is one, the forget and the output gate.
  Tensor seen(const Tensor& gate, int64_t row, const Tensor& cell) const {
    if (!c.has(kPeephole)) return gate;
    const auto at = [&](size_t i) { return c.x(i).to(DType::i64).select(0, row + gates - 4); };
    return short_bounded(
        gate + tflite_times_factor(cell * at(kPeephole), at(kPeepMultiplier), at(kPeepShift)));
  }
  Tensor factored(const Tensor& v, const std::vector<int64_t>& f) const {
    return tflite_times_factor(v, f[0], f[1]);
  }
  /// State and cell after a step, both i64.
  std::pair<Tensor, Tensor> step(const Tensor& x, const Tensor& state, const Tensor& cell) const {
    const Tensor all = short_bounded(x + products(state, kState));
    const Tensor forget = looked_up(c.x(kSigmoid), seen(gate(all, 1), 1, cell));
    const Tensor input =
        gates == 3 ? kLastShort - forget : looked_up(c.x(kSigmoid), seen(gate(all, 0), 0, cell));
    const Tensor fresh = looked_up(c.x(kTanh), gate(all, 2));
    Tensor next = short_bounded(divided(forget * cell, 15) + divided(input * fresh, 30 + power()));
    if (const int64_t clip = c.attr("cell_clip", 0); clip > 0) next = clamp(next, -clip, clip);
    const Tensor out = looked_up(c.x(kSigmoid), seen(gate(all, 3), 2, next));
    Tensor y = factored(out * looked_up(c.x(kCellTanh), next), hidden) + c.attr("hidden_zero", 0);
    y = clamp(y, -128, 127);
    if (!c.has(kProjection)) return {y, next};
    y = matmul_integer(y.to(DType::i8), contiguous(c.x(kProjection).t())).to(DType::i64);
    y = factored(y + c.x(kProjectionBias), product) + c.attr("zero", 0);
    return {clamp(y, -128, 127), next};
  }

  OnnxCall& c;
  int64_t cells, gates;
  std::vector<int64_t> hidden, product;
};

}  // namespace

void tflite_lstm_row(OnnxCall& c) {
  const IntegerLstm layer(c);
  const Tensor xs = short_bounded(layer.products(c.x(kX), kInput));
  using State = std::tuple<Tensor, Tensor>;
  const auto step = [&](const State& s, const Tensor& x) {
    const auto [y, cell] = layer.step(x, std::get<0>(s), std::get<1>(s).to(DType::i64));
    const Tensor codes = y.to(DType::i8);
    return std::pair(State(codes, cell.to(DType::i16)), codes);
  };
  const auto [last, all] = scan(step, State(c.x(kFirstState), c.x(kFirstCell)), xs);
  c.set(0, all, OnnxType::i8);
  c.set(1, std::get<0>(last), OnnxType::i8);
  c.set(2, std::get<1>(last), OnnxType::i16);
}

}  // namespace tandem::onnx
