// SPDX-License-Identifier: Apache-2.0
// TFLite's recurrent operators, whose states are variables, as ONNX's RNN and LSTM: for one step,
// for sequences, and in both directions.
#include "tandem/onnx/tflite/builder_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kRelu = 1, kTanh = 4;  ///< of ActivationFunctionType

int64_t units_of(const TfliteCall& c, size_t weight) {
  const TfliteTensor& t = c.tensor(weight);
  if (t.shape.size() != 2)
    c.b.fail(fmt::format("the weight '{}' has {} dimensions, expected 2", t.name, t.shape.size()));
  return t.shape[0];
}

std::string turned_time(TfliteCall& c, const std::string& x) {
  return c.onnx("Transpose", {x}, {onnx_ints("perm", {1, 0, 2})});
}
std::string unsqueezed(TfliteCall& c, const std::string& x) {
  return c.onnx("Unsqueeze", {x, c.list({0})});
}

// The states of ONNX's results from 1 on go into these variables; the sequence is what is left.
std::string with_states(TfliteCall& c, const Names& y, std::initializer_list<size_t> variables) {
  size_t k = 1;
  for (const size_t v : variables) {
    const std::string after = c.onnx("Squeeze", {y[k++], c.list({0})});
    c.b.set_value(c.scope, c.op.in.at(v), after, false);
  }
  return c.onnx("Squeeze", {y[0], c.list({1})});
}

// The results of both directions, as one or as two.
void set_both(TfliteCall& c, std::string forward, std::string backward, bool merge, bool turn) {
  if (turn) {
    forward = turned_time(c, forward);
    backward = turned_time(c, backward);
  }
  if (merge) return c.set(0, c.onnx("Concat", {forward, backward}, {onnx_int("axis", 2)}));
  c.set(0, forward);
  c.set(1, backward);
}

// ---- RNN: operands from `at` on are the weights of inputs and of states, the bias, the state

std::string rnn(TfliteCall& c, const std::string& x, size_t at, int64_t activation, bool reverse) {
  if (activation != kRelu && activation != kTanh) c.lacks("an activation other than tanh and relu");
  const int64_t units = units_of(c, at);
  const std::string zeros =
      c.b.constant("zeros", OnnxValue(tandem::zeros(Shape(1, units), DType::f32)));
  const std::string bias =
      c.onnx("Concat", {unsqueezed(c, c.wide(at + 2)), zeros}, {onnx_int("axis", 1)});
  OnnxAttribute activations;
  activations.name = "activations";
  activations.kind = OnnxAttribute::strings;
  activations.text_list = {activation == kRelu ? "Relu" : "Tanh"};
  const Names y = c.many("RNN", "",
                         {x, unsqueezed(c, c.wide(at)), unsqueezed(c, c.wide(at + 1)), bias, "",
                          unsqueezed(c, c.x(at + 3))},
                         2,
                         {onnx_int("hidden_size", units), activations,
                          onnx_text("direction", reverse ? "reverse" : "forward")});
  return with_states(c, y, {at + 3});
}

void tflite_rnn(TfliteCall& c) {
  c.set(0, c.onnx("Squeeze", {rnn(c, unsqueezed(c, c.x(0)), 1, c.small(0), false), c.list({0})}));
}
void tflite_sequence_rnn(TfliteCall& c) {
  const bool turn = !c.flag(0);
  const std::string y = rnn(c, turn ? turned_time(c, c.x(0)) : c.x(0), 1, c.small(1), false);
  c.set(0, turn ? turned_time(c, y) : y);
}
void tflite_both_rnn(TfliteCall& c) {
  for (size_t i = 9; i < 12; ++i)
    if (c.has(i)) c.lacks("an auxiliary input");
  const bool turn = !c.flag(0);
  const std::string x = turn ? turned_time(c, c.x(0)) : c.x(0);
  const std::string forward = rnn(c, x, 1, c.small(1), false);
  set_both(c, forward, rnn(c, x, 5, c.small(1), true), c.flag(2), turn);
}

// ---- LSTM: four gates, by TFLite's order input, forget, cell, output. ONNX wants i, o, f, c, and
// the peepholes i, o, f.

/// Where the operands of one direction begin: weights of inputs, from which those of states,
/// peepholes, biases and the projection follow, and its two variables.
struct LstmPlaces {
  size_t weights, state;
  bool reverse = false;
};

std::string lstm(TfliteCall& c, const std::string& x, const LstmPlaces& at) {
  const size_t w = at.weights, states = w + 4, peepholes = w + 8, biases = w + 11;
  if (c.small(0) != kTanh) c.lacks("an activation other than tanh");
  if (c.has(w + 15) || c.has(w + 16)) c.lacks("a projection");
  if (!c.has(w)) c.lacks("coupled gates");
  if (c.real(1) != 0) c.lacks("a clipped cell");
  const int64_t units = units_of(c, w + 1);
  const auto gates = [&](size_t first, std::initializer_list<size_t> order) {
    Names parts;
    for (const size_t g : order) parts.push_back(c.wide(first + g));
    return unsqueezed(c, c.onnx("Concat", std::move(parts), {onnx_int("axis", 0)}));
  };
  Names in{x, gates(w, {0, 3, 1, 2}), gates(states, {0, 3, 1, 2})};
  const std::string zeros =
      c.b.constant("zeros", OnnxValue(tandem::zeros(Shape(1, 4 * units), DType::f32)));
  in.push_back(c.has(biases + 1)
                   ? c.onnx("Concat", {gates(biases, {0, 3, 1, 2}), zeros}, {onnx_int("axis", 1)})
                   : std::string());
  in.push_back("");
  for (const size_t k : {0, 1}) in.push_back(unsqueezed(c, c.x(at.state + k)));
  if (c.has(peepholes + 1)) in.push_back(gates(peepholes, {0, 2, 1}));
  const Names y = c.many(
      "LSTM", "", std::move(in), 3,
      {onnx_int("hidden_size", units), onnx_text("direction", at.reverse ? "reverse" : "forward")});
  return with_states(c, y, {at.state, at.state + 1});
}

void tflite_sequence_lstm(TfliteCall& c) {
  for (size_t i = 20; i < 24; ++i)
    if (c.has(i)) c.lacks("layer normalisation");
  const bool turn = !c.flag(3);
  const std::string y = lstm(c, turn ? turned_time(c, c.x(0)) : c.x(0), {1, 18});
  c.set(0, turn ? turned_time(c, y) : y);
}
void tflite_both_lstm(TfliteCall& c) {
  for (size_t i = 39; i < 48; ++i)
    if (c.has(i)) c.lacks("an auxiliary input");
  const bool turn = c.op.options.number<uint8_t>(4, 1) == 0;  // the only one that is on unless said
  const std::string x = turn ? turned_time(c, c.x(0)) : c.x(0);
  const std::string forward = lstm(c, x, {1, 35});
  set_both(c, forward, lstm(c, x, {18, 37, true}), c.flag(3), turn);
}

}  // namespace

std::span<const TfliteRow> tflite_recurrent_rows() {
  static constexpr TfliteRow kRows[] = {
      {24, "RNN", tflite_rnn},
      {35, "UNIDIRECTIONAL_SEQUENCE_RNN", tflite_sequence_rnn},
      {44, "UNIDIRECTIONAL_SEQUENCE_LSTM", tflite_sequence_lstm, nullptr, -1, TfliteCodes::numbers,
       tflite_lstm_codes},
      {46, "BIDIRECTIONAL_SEQUENCE_RNN", tflite_both_rnn},
      {52, "BIDIRECTIONAL_SEQUENCE_LSTM", tflite_both_lstm},
  };
  return kRows;
}

}  // namespace tandem::onnx
