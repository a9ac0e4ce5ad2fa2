// SPDX-License-Identifier: Apache-2.0
// One LSTM step (ops/nn/lstm_cell.cpp has its formulas): a thread an element of the state.
#include "tandem/ops/nn/rnn.h"
#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"

namespace tandem::gpu {
namespace {

constexpr DenseKernel kLstmCell{.name = "lstm_cell", .body = {R"td_text(
  const td_i64 r = me / hidden, k = me % hidden, g = r * 4 * hidden + k, s = r * 5 * hidden + k;
  const TO0 i = MATH(tdm_sigmoid)(I0(g)), f = MATH(tdm_sigmoid)(I0(g + hidden));
  const TO0 u = MATH(tdm_tanh)(I0(g + 2 * hidden)), o = MATH(tdm_sigmoid)(I0(g + 3 * hidden));
  const TO0 c = f * I1(me) + i * u;
  P2(s, i);
  P2(s + hidden, f);
  P2(s + 2 * hidden, u);
  P2(s + 3 * hidden, o);
  P2(s + 4 * hidden, c);
  P1(me, c);
  P0(me, o * MATH(tdm_tanh)(c));
)td_text"}};

// Inputs gh?, gc?, gsaved?, saved, c.
constexpr DenseKernel kLstmCellBackward{.name = "lstm_cell_backward", .body = {R"td_text(
  const td_i64 r = me / hidden, k = me % hidden, g = r * 4 * hidden + k, s = r * 5 * hidden + k;
  const TO0 i = I3(s), f = I3(s + hidden), u = I3(s + 2 * hidden), o = I3(s + 3 * hidden);
  const TO0 t = MATH(tdm_tanh)(I3(s + 4 * hidden)), dh = I0(me);
  const TO0 dc = I1(me) + (dh * o * (1 - t * t) + I2(s + 4 * hidden));
  const TO0 di = dc * u + I2(s), df = dc * I4(me) + I2(s + hidden);
  const TO0 du = dc * i + I2(s + 2 * hidden), od = dh * t + I2(s + 3 * hidden);
  P0(g, di * i * (1 - i));
  P0(g + hidden, df * f * (1 - f));
  P0(g + 2 * hidden, du * (1 - u * u));
  P0(g + 3 * hidden, od * o * (1 - o));
  P1(me, dc * f);
)td_text"}};

void run_lstm_cell(const KernelCall& c) {
  DenseCall call(c);
  call.number("hidden", c.in[1].shape[1]).run(kLstmCell, c.in[1].numel);
}
void run_lstm_cell_backward(const KernelCall& c) {
  DenseCall call(c);
  call.number("hidden", c.in[4].shape[1]).run(kLstmCellBackward, c.in[4].numel);
}

}  // namespace

void register_rnn(DeviceKind kind) {
  register_kernel(kind, op::lstm_cell, {has_types, nullptr, prepare_dense, run_lstm_cell});
  register_kernel(kind, op::lstm_cell_backward,
                  {has_types, nullptr, prepare_dense, run_lstm_cell_backward});
}

}  // namespace tandem::gpu
