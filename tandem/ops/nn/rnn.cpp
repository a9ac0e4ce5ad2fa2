// SPDX-License-Identifier: Apache-2.0
// The row `lstm` (a whole sequence, keeping its gates; all steps share one matmul with each
// weight where they can) and the functions of all recurrent rows. Its step is in lstm_cell.cpp;
// gru.cpp has the other rows.
#include "tandem/ops/nn/rnn.h"

#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/rnn_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using namespace detail;

// ---- shape rules

void lstm_infer(InferCall& c) {
  const Shape &x = c.in[0].shape, &w = c.in[4].shape;
  TD_CHECK(x.rank() == 3, Shape, "x is {}, expected [steps, n, features]", x.to_string());
  TD_CHECK(x[0].is_symbolic() || x[0].value() > 0, Shape, "x is {}: a sequence without steps",
           x.to_string());
  TD_CHECK(w.rank() == 2, Shape, "w_hh is {}, expected [4 * hidden, hidden]", w.to_string());
  check_weight_dtypes(c);
  Dim n = x[1], h = w[1], h4 = h * Dim(4);
  want_shape(c, 1, "h0", {n, h});
  want_shape(c, 2, "c0", {n, h});
  want_shape(c, 3, "w_ih", {h4, x[2]});
  want_shape(c, 4, "w_hh", {h4, h});
  want_shape(c, 5, "b_ih", {h4});
  want_shape(c, 6, "b_hh", {h4});
  DType t = c.in[0].dtype;
  c.out[0] = Spec(t, {x[0], n, h}, c.in[0].device);
  c.out[1] = c.out[2] = Spec(t, {n, h}, c.in[0].device);
  c.out[3] = Spec(t, {x[0], n, h * Dim(5)}, c.in[0].device);
}

void lstm_backward_infer(InferCall& c) {
  const Spec &c0 = c.in[5], &saved = c.in[6];
  TD_CHECK(saved.rank() == 3 && c0.rank() == 2, Shape, "saved is {}, c0 is {}",
           saved.shape.to_string(), c0.shape.to_string());
  Dim steps = saved[0], n = c0[0], h = c0[1];
  want_shape(c, 0, "gy", {steps, n, h});
  want_shape(c, 1, "ghn", {n, h});
  want_shape(c, 2, "gcn", {n, h});
  want_shape(c, 3, "gsaved", {steps, n, h * Dim(5)});
  want_shape(c, 4, "w_hh", {h * Dim(4), h});
  want_shape(c, 6, "saved", {steps, n, h * Dim(5)});
  c.out[0] = Spec(c0.dtype, {steps, n, h * Dim(4)}, c0.device);
  c.out[1] = c.out[2] = Spec(c0.dtype, c0.shape, c0.device);
}

// ---- bodies

// One matmul with w_ih for all steps, plus both biases.
Tensor project(const Tensor& x, const Tensor& w_ih, const Tensor& b_ih, const Tensor& b_hh) {
  Tensor b = b_ih.defined() && b_hh.defined() ? b_ih + b_hh : b_ih.defined() ? b_ih : b_hh;
  return linear(x, w_ih, b);
}

struct LstmState {
  Tensor h, c, saved;
};
LstmState cell_step(Tensor gates, Tensor c, SourceLocation loc) {
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(std::move(gates), loc), Operand(std::move(c), loc)};
  apply(op::lstm_cell, nullptr, ins, out, loc);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

void lstm_body(BodyCall& b) {
  bool reverse = b.get_attrs<LstmAttrs>().reverse;
  const Tensor &x = b.in[0], &w_hh = b.in[4];
  Tensor gates = project(x, b.in[3], b.in[5], b.in[6]);
  int64_t steps = x.size(0);
  std::vector<Tensor> ys(static_cast<size_t>(steps)), saved(ys.size());
  LstmState s{b.in[1], b.in[2], {}};
  for (int64_t k = 0; k < steps; ++k) {
    int64_t t = step_at(k, steps, reverse);
    Tensor g = matmul(s.h, w_hh, MatmulAttrs{false, true}) + gates.select(0, t);
    s = cell_step(std::move(g), std::move(s.c), SourceLocation::here());
    ys[static_cast<size_t>(t)] = s.h;
    saved[static_cast<size_t>(t)] = s.saved;
  }
  b.out[0] = stack(ys, 0);
  b.out[1] = std::move(s.h);
  b.out[2] = std::move(s.c);
  if (b.want_hidden) b.out[3] = stack(saved, 0);
}

void lstm_backward_body(BodyCall& b) {
  bool reverse = b.get_attrs<LstmAttrs>().reverse;
  const Tensor &gy = b.in[0], &gsaved = b.in[3], &w_hh = b.in[4], &c0 = b.in[5], &saved = b.in[6];
  int64_t steps = saved.size(0);
  Dim h = c0.shape(1);
  Tensor cells = narrow(saved, 2, h * Dim(4), h);
  std::vector<Tensor> ggates(static_cast<size_t>(steps));
  Tensor gh = b.in[1], gc = b.in[2];
  SourceLocation here = SourceLocation::here();
  for (int64_t k = steps - 1; k >= 0; --k) {
    int64_t t = step_at(k, steps, reverse);
    Tensor before = k ? cells.select(0, step_at(k - 1, steps, reverse)) : c0;
    Tensor out[kMaxOpOuts];
    Operand ins[] = {Operand(plus(at_step(gy, t), std::move(gh)), here),
                     Operand(std::move(gc), here), Operand(at_step(gsaved, t), here),
                     Operand(saved.select(0, t), here), Operand(std::move(before), here)};
    apply(op::lstm_cell_backward, nullptr, ins, out, here);
    gh = matmul(out[0], w_hh);
    ggates[static_cast<size_t>(t)] = std::move(out[0]);
    gc = std::move(out[1]);
  }
  b.out[0] = stack(ggates, 0);
  b.out[1] = std::move(gh);
  b.out[2] = std::move(gc);
}

// ---- derivative

void lstm_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<LstmAttrs>();
  SourceLocation loc = c.loc();
  Tensor out[kMaxOpOuts], saved = c.out(3);
  Operand ins[] = {Operand(c.grads[0], loc), Operand(c.grads[1], loc), Operand(c.grads[2], loc),
                   Operand(c.grads[3], loc), Operand(c.in(4), loc),    Operand(c.in(2), loc),
                   Operand(saved, loc)};
  apply(op::lstm_backward, &a, ins, out, loc);
  const Tensor& g = out[0];
  if (c.needs(0)) c.results[0] = matmul(g, c.in(3), loc);
  if (c.needs(1)) c.results[1] = std::move(out[1]);
  if (c.needs(2)) c.results[2] = std::move(out[2]);
  Tensor rows = flat_rows(g, loc);
  MatmulAttrs t{true, false};
  if (c.needs(3)) c.results[3] = matmul(rows, flat_rows(c.in(0), loc), t, loc);
  if (c.needs(4)) {
    Tensor before = states_before(c.out(0), c.in(1), a.reverse, loc);
    c.results[4] = matmul(rows, flat_rows(before, loc), t, loc);
  }
  Tensor gb;
  for (int i : {5, 6})
    if (c.has(i) && c.needs(i)) {
      if (!gb.defined()) gb = rows.sum({0}, false, loc);
      c.results[i] = gb;
    }
}

double lstm_flops(const InferCall& c) {
  const Shape &x = c.in[0].shape, &w = c.in[4].shape;
  double rows = static_cast<double>((x[0] * x[1]).value());
  double h = static_cast<double>(w[1].value()), i = static_cast<double>(x[2].value());
  return 8 * rows * h * (h + i);
}

// The recurrent matmul of every step; those with x and the weights are separate rows.
double lstm_backward_flops(const InferCall& c) {
  const Shape &w = c.in[4].shape, &saved = c.in[6].shape;
  return 2 * static_cast<double>((saved[0] * saved[1]).value()) *
         static_cast<double>((w[0] * w[1]).value());
}

// ---- functions

// One step of h = f(w_ih x + b_ih (given as xg) , w_hh h + b_hh).
Tensor gru_step(const Tensor& xg, const Tensor& h, const Tensor& w_hh, const Tensor& b_hh,
                SourceLocation loc) {
  Tensor hg = linear(h, w_hh, b_hh, loc);
  std::vector<Tensor> a = xg.chunk(3, -1, loc), b = hg.chunk(3, -1, loc);
  Tensor r = (a[0] + b[0]).sigmoid(loc), z = (a[1] + b[1]).sigmoid(loc);
  Tensor n = (a[2] + r * b[2]).tanh(loc);
  return n + z * (h - n);
}

Tensor tanh_step(const Tensor& xg, const Tensor& h, const Tensor& w_hh, const Tensor& b_hh,
                 SourceLocation loc) {
  return (xg + linear(h, w_hh, b_hh, loc)).tanh(loc);
}
Tensor relu_step(const Tensor& xg, const Tensor& h, const Tensor& w_hh, const Tensor& b_hh,
                 SourceLocation loc) {
  return (xg + linear(h, w_hh, b_hh, loc)).relu(loc);
}

using Step = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, SourceLocation);

RnnResult run_row(const char* name, const OpDef& row, const void* attrs, Tensor x, Tensor h0,
                  Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh, SourceLocation loc) {
  placed(name, loc, [&] { check_sequence(x, w_hh); });
  h0 = state_or_zeros(std::move(h0), x, w_hh.shape(1), 1, loc);
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(std::move(x), loc),    Operand(std::move(h0), loc),
                   Operand(std::move(w_ih), loc), Operand(std::move(w_hh), loc),
                   Operand(std::move(b_ih), loc), Operand(std::move(b_hh), loc)};
  apply(row, attrs, ins, out, loc);
  return {std::move(out[0]), std::move(out[1])};
}

/// The weights of a cell, `gates` blocks of rows each.
void check_cell(const Tensor& w_ih, const Tensor& w_hh, int64_t gates) {
  TD_CHECK(w_hh.dim() == 2, Shape, "w_hh is {}, expected a matrix", w_hh.shape().to_string());
  const Dim rows = w_hh.shape(1) * Dim(gates);
  for (const Tensor* w : {&w_ih, &w_hh})
    TD_CHECK(w->dim() == 2 && dims_equal(w->shape(0), rows), Shape,
             "{} is {}, expected {} rows: {} for each of {} hidden values",
             w == &w_ih ? "w_ih" : "w_hh", w->shape().to_string(), rows.to_string(), gates,
             w_hh.shape(1).to_string());
}

Tensor run_cell(Step step, int64_t gates, const Tensor& x, Tensor h, const Tensor& w_ih,
                const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, SourceLocation loc) {
  check_cell(w_ih, w_hh, gates);
  h = state_or_zeros(std::move(h), x, w_hh.shape(1), 0, loc);
  return step(linear(x, w_ih, b_ih, loc), h, w_hh, b_hh, loc);
}

}  // namespace

namespace op {
constinit const OpDef lstm = composite("lstm", {"x", "h0", "c0", "w_ih", "w_hh", "b_ih?", "b_hh?"},
                                       fields<LstmAttrs>(), lstm_body)
                                 .outputs({"y", "hn", "cn", "saved!"})
                                 .infer(lstm_infer)
                                 .vjp(lstm_vjp, 31, 9)
                                 .autocast(Autocast::low)
                                 .flops(lstm_flops)
                                 .onnx("LSTM")
                                 .doc("One LSTM layer in one direction over x [t, n, i].");
constinit const OpDef lstm_backward =
    composite("lstm_backward", {"gy?", "ghn?", "gcn?", "gsaved?", "w_hh", "c0", "saved"},
              fields<LstmAttrs>(), lstm_backward_body)
        .outputs({"ggates", "gh0", "gc0"})
        .infer(lstm_backward_infer)
        .flops(lstm_backward_flops)
        .doc("Gradients of lstm with respect to its pre-activation gates, h0 and c0.");
}  // namespace op

std::span<const OpDef* const> rnn_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::lstm, &op::lstm_backward, &op::lstm_cell, &op::lstm_cell_backward,
      &op::gru,  &op::gru_backward,  &op::rnn,       &op::rnn_backward};
  return kRows;
}

LstmResult lstm(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                bool reverse, SourceLocation loc) {
  if (!h0.defined() || !c0.defined()) {
    placed("lstm", loc, [&] { check_sequence(x, w_hh); });
    h0 = state_or_zeros(std::move(h0), x, w_hh.shape(1), 1, loc);
    c0 = state_or_zeros(std::move(c0), x, w_hh.shape(1), 1, loc);
  }
  LstmAttrs a{reverse};
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(std::move(x), loc),    Operand(std::move(h0), loc),
                   Operand(std::move(c0), loc),   Operand(std::move(w_ih), loc),
                   Operand(std::move(w_hh), loc), Operand(std::move(b_ih), loc),
                   Operand(std::move(b_hh), loc)};
  apply(op::lstm, &a, ins, out, loc);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

LstmResult lstm_projected(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor b_ih,
                          Tensor b_hh, Tensor w_hr, bool reverse, SourceLocation loc) {
  placed("lstm_projected", loc, [&] {
    check_sequence(x, w_hh);
    TD_CHECK(w_hr.dim() == 2, Shape, "w_hr is {}, expected [projection, hidden]",
             w_hr.shape().to_string());
  });
  LstmState s{state_or_zeros(std::move(h0), x, w_hr.shape(0), 1, loc),
              state_or_zeros(std::move(c0), x, w_hr.shape(1), 1, loc),
              {}};
  Tensor gates = project(x, w_ih, b_ih, b_hh);
  int64_t steps = x.size(0);
  std::vector<Tensor> ys(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) {
    int64_t t = step_at(k, steps, reverse);
    Tensor g = linear(s.h, w_hh, {}, loc) + gates.select(0, t, loc);
    s = cell_step(std::move(g), std::move(s.c), loc);
    s.h = linear(std::move(s.h), w_hr, {}, loc);
    ys[static_cast<size_t>(t)] = s.h;
  }
  return {stack(ys, 0, loc), std::move(s.h), std::move(s.c)};
}

std::pair<Tensor, Tensor> lstm_cell(Tensor x, Tensor h, Tensor c, Tensor w_ih, Tensor w_hh,
                                    Tensor b_ih, Tensor b_hh, SourceLocation loc) {
  return named("lstm_cell", loc, [&]() -> std::pair<Tensor, Tensor> {
    h = state_or_zeros(std::move(h), x, w_hh.shape(1), 0, loc);
    c = state_or_zeros(std::move(c), x, w_hh.shape(1), 0, loc);
    Tensor g = linear(std::move(x), std::move(w_ih), std::move(b_ih), loc) +
               linear(std::move(h), std::move(w_hh), std::move(b_hh), loc);
    LstmState s = cell_step(std::move(g), std::move(c), loc);
    return {std::move(s.h), std::move(s.c)};
  });
}

RnnResult gru(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh, bool reverse,
              SourceLocation loc) {
  const LstmAttrs a{reverse};
  return run_row("gru", op::gru, &a, std::move(x), std::move(h0), std::move(w_ih), std::move(w_hh),
                 std::move(b_ih), std::move(b_hh), loc);
}
Tensor gru_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                SourceLocation loc) {
  return named("gru_cell", loc,
               [&] { return run_cell(gru_step, 3, x, std::move(h), w_ih, w_hh, b_ih, b_hh, loc); });
}
RnnResult rnn_tanh(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                   bool reverse, SourceLocation loc) {
  const RnnAttrs a{reverse, false};
  return run_row("rnn_tanh", op::rnn, &a, std::move(x), std::move(h0), std::move(w_ih),
                 std::move(w_hh), std::move(b_ih), std::move(b_hh), loc);
}
RnnResult rnn_relu(Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                   bool reverse, SourceLocation loc) {
  const RnnAttrs a{reverse, true};
  return run_row("rnn_relu", op::rnn, &a, std::move(x), std::move(h0), std::move(w_ih),
                 std::move(w_hh), std::move(b_ih), std::move(b_hh), loc);
}
Tensor rnn_tanh_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                     SourceLocation loc) {
  return named("rnn_tanh_cell", loc, [&] {
    return run_cell(tanh_step, 1, x, std::move(h), w_ih, w_hh, b_ih, b_hh, loc);
  });
}
Tensor rnn_relu_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh,
                     SourceLocation loc) {
  return named("rnn_relu_cell", loc, [&] {
    return run_cell(relu_step, 1, x, std::move(h), w_ih, w_hh, b_ih, b_hh, loc);
  });
}

}  // namespace tandem
