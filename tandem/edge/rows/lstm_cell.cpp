// SPDX-License-Identifier: Apache-2.0
// One LSTM step: i, f, o = sigmoid and u = tanh of the gates [n, 4 h], c' = f c + i u,
// h = o tanh(c'), with the functions and the order of the reference.
#include "tandem/edge/rows_internal.h"

namespace tandem::edge {

void emit_lstm_cell(const KernelCall& c, Body& to) {
  const Array &gates = c.in[0], &state = c.in[1];
  const int64_t n = state.shape[0], h = state.shape[1];
  const char* type = c_type(state.dtype);
  const char* suffix = state.dtype == DType::f32 ? "f" : "";
  Lines& t = to.text;
  t.loop("n", n);
  t.open("for (int32_t k = 0; k < {}; ++k)", h);
  const auto gate = [&](const char* name, const char* function, int64_t number) {
    t.line("const {} {} = {}{}(x0[{} + {} + k * {}]);", type, name, function, suffix,
           place({{"n", n, gates.strides[0]}}), number * h * gates.strides[1], gates.strides[1]);
  };
  gate("i", "tdm_sigmoid", 0);
  gate("f", "tdm_sigmoid", 1);
  gate("u", "tdm_tanh", 2);
  gate("o", "tdm_sigmoid", 3);
  const auto at = [&](const Array& a) {
    return fmt::format("{} + k * {}", place({{"n", n, a.strides[0]}}), a.strides[1]);
  };
  t.line("const {} v = f * x1[{}] + i * u;", type, at(state));
  if (c.out[1].present()) t.line("y1[{}] = v;", at(c.out[1]));
  if (c.out[0].present()) t.line("y0[{}] = o * tdm_tanh{}(v);", at(c.out[0]), suffix);
  if (c.out[2].present()) {
    const char* saved[] = {"i", "f", "u", "o", "v"};
    for (int64_t k = 0; k < 5; ++k)
      t.line("y2[{} + {}] = {};", at(c.out[2]), k * h * c.out[2].strides[1], saved[k]);
  }
  t.close();
  t.end_loop(n);
}

}  // namespace tandem::edge
