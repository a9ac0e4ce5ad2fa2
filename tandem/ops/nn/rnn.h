// SPDX-License-Identifier: Apache-2.0
// Recurrent layers over whole sequences, one layer and direction per call: lstm, gru and rnn are
// rows that save what their derivatives read. Gate order and formulas are PyTorch's.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

struct LstmAttrs {
  bool reverse = false;  ///< process the steps from last to first
  template <class V>
  void fields(V& v) {
    v("reverse", reverse);
  }
};

struct RnnAttrs {
  bool reverse = false;
  bool relu = false;  ///< else tanh
  template <class V>
  void fields(V& v) {
    v("reverse", reverse);
    v("relu", relu);
  }
};

namespace op {
/// lstm: x [t, n, i], h0 [n, h], c0 [n, h], w_ih [4h, i], w_hh [4h, h], b_ih? [4h],
/// b_hh? [4h] -> y [t, n, h], hn [n, h], cn [n, h], saved! [t, n, 5h] = (i, f, g, o
/// after activation, c). lstm_backward: gy?, ghn?, gcn?, gsaved?, w_hh, c0, saved ->
/// ggates [t, n, 4h] (before activation), gh0, gc0. lstm_cell: gates [n, 4h] (before
/// activation), c [n, h] -> h, c, saved [n, 5h]. lstm_cell_backward: gh, gc, saved, c ->
/// ggates [n, 4h], gc [n, h]. gru: x, h0, w_ih [3h, i], w_hh [3h, h], b_ih?, b_hh? -> y
/// [t, n, h], hn [n, h], saved! [t, n, 4h] = (r, z, n, w_hn h + b_hn). gru_backward:
/// gy?, ghn?, gsaved?, w_hh, h0, y, saved -> gx [t, n, 3h] and gh [t, n, 3h], the
/// gradients of the matmuls with x and with h, gh0. rnn: x, h0, w_ih [h, i], w_hh [h,
/// h], b_ih?, b_hh? -> y [t, n, h], hn. rnn_backward: gy?, ghn?, w_hh, y -> ggates [t,
/// n, h], gh0.
extern TD_API const OpDef lstm, lstm_backward, lstm_cell, lstm_cell_backward, gru, gru_backward,
    rnn, rnn_backward;
}  // namespace op
TD_API std::span<const OpDef* const> rnn_rows();

/// One LSTM layer in one direction over x [t, n, i]: y [t, n, h], h and c [n, h]; undefined h0, c0
/// are zeros.
TD_API LstmResult lstm(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                       Tensor b_hh = {}, bool reverse = false,
                       SourceLocation loc = SourceLocation::here());
/// The same with a projection w_hr [p, h] of the output: y [t, n, p], h [n, p], w_hh [4h, p].
TD_API LstmResult lstm_projected(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh,
                                 Tensor b_ih, Tensor b_hh, Tensor w_hr, bool reverse = false,
                                 SourceLocation loc = SourceLocation::here());
/// One step: x [n, i], h [n, h], c [n, h] -> (h, c).
TD_API std::pair<Tensor, Tensor> lstm_cell(Tensor x, Tensor h, Tensor c, Tensor w_ih, Tensor w_hh,
                                           Tensor b_ih = {}, Tensor b_hh = {},
                                           SourceLocation loc = SourceLocation::here());
/// One GRU layer in one direction; w_ih [3h, i], w_hh [3h, h].
TD_API RnnResult gru(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                     Tensor b_hh = {}, bool reverse = false,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor gru_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                       Tensor b_hh = {}, SourceLocation loc = SourceLocation::here());
/// One layer of h = tanh(w_ih x + b_ih + w_hh h + b_hh) in one direction.
TD_API RnnResult rnn_tanh(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                          Tensor b_hh = {}, bool reverse = false,
                          SourceLocation loc = SourceLocation::here());
/// The same with relu.
TD_API RnnResult rnn_relu(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                          Tensor b_hh = {}, bool reverse = false,
                          SourceLocation loc = SourceLocation::here());
TD_API Tensor rnn_tanh_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                            Tensor b_hh = {}, SourceLocation loc = SourceLocation::here());
TD_API Tensor rnn_relu_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih = {},
                            Tensor b_hh = {}, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
