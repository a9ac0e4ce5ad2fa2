// SPDX-License-Identifier: Apache-2.0
// The rows `gru` and `rnn` over whole sequences and their derivatives. As in `lstm`, all steps
// share one matmul with w_ih, and one for each gradient of a weight.
#include "tandem/ops/nn/rnn.h"
#include "tandem/ops/nn/rnn_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem {
namespace {

using namespace detail;

// ---- shape rules

// x, h0, w_ih, w_hh, b_ih?, b_hh? of a layer with `gates` gates.
void layer_infer(InferCall& c, int64_t gates) {
  const Shape &x = c.in[0].shape, &w = c.in[3].shape;
  TD_CHECK(x.rank() == 3, Shape, "x is {}, expected [steps, n, features]", x.to_string());
  TD_CHECK(x[0].is_symbolic() || x[0].value() > 0, Shape, "x is {}: a sequence without steps",
           x.to_string());
  TD_CHECK(w.rank() == 2, Shape, "w_hh is {}, expected [{} * hidden, hidden]", w.to_string(),
           gates);
  check_weight_dtypes(c);
  const Dim n = x[1], h = w[1], all = h * Dim(gates);
  want_shape(c, 1, "h0", {n, h});
  want_shape(c, 2, "w_ih", {all, x[2]});
  want_shape(c, 3, "w_hh", {all, h});
  want_shape(c, 4, "b_ih", {all});
  want_shape(c, 5, "b_hh", {all});
  c.out[0] = Spec(c.in[0].dtype, {x[0], n, h}, c.in[0].device);
  c.out[1] = Spec(c.in[0].dtype, {n, h}, c.in[0].device);
}
void gru_infer(InferCall& c) {
  layer_infer(c, 3);
  const Shape& y = c.out[0].shape;
  c.out[2] = Spec(c.in[0].dtype, {y[0], y[1], y[2] * Dim(4)}, c.in[0].device);
}
void rnn_infer(InferCall& c) { layer_infer(c, 1); }

void gru_backward_infer(InferCall& c) {
  const Spec &h0 = c.in[4], &y = c.in[5];
  TD_CHECK(y.rank() == 3 && h0.rank() == 2, Shape, "y is {}, h0 is {}", y.shape.to_string(),
           h0.shape.to_string());
  const Dim steps = y[0], n = h0[0], h = h0[1];
  want_shape(c, 0, "gy", {steps, n, h});
  want_shape(c, 1, "ghn", {n, h});
  want_shape(c, 2, "gsaved", {steps, n, h * Dim(4)});
  want_shape(c, 3, "w_hh", {h * Dim(3), h});
  want_shape(c, 5, "y", {steps, n, h});
  want_shape(c, 6, "saved", {steps, n, h * Dim(4)});
  c.out[0] = c.out[1] = Spec(h0.dtype, {steps, n, h * Dim(3)}, h0.device);
  c.out[2] = Spec(h0.dtype, h0.shape, h0.device);
}
void rnn_backward_infer(InferCall& c) {
  const Spec& y = c.in[3];
  TD_CHECK(y.rank() == 3, Shape, "y is {}, expected [steps, n, hidden]", y.shape.to_string());
  want_shape(c, 0, "gy", y.shape);
  want_shape(c, 1, "ghn", {y[1], y[2]});
  want_shape(c, 2, "w_hh", {y[2], y[2]});
  c.out[0] = Spec(y.dtype, y.shape, y.device);
  c.out[1] = Spec(y.dtype, {y[1], y[2]}, y.device);
}

// ---- bodies

Tensor times_transposed(const Tensor& a, const Tensor& b) {
  return matmul(a, b, MatmulAttrs{false, true});
}

void gru_body(BodyCall& b) {
  const bool reverse = b.get_attrs<LstmAttrs>().reverse;
  const Tensor &x = b.in[0], &w_hh = b.in[3], &b_hh = b.in[5];
  const Tensor all = linear(x, b.in[2], b.in[4]);
  const int64_t steps = x.size(0);
  const Dim h = w_hh.shape(1);
  std::vector<Tensor> ys(static_cast<size_t>(steps)), saved(ys.size());
  Tensor state = b.in[1];
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = step_at(k, steps, reverse);
    const Tensor xg = all.select(0, t), hg = linear(state, w_hh, b_hh);
    const Tensor both = sigmoid(narrow(xg, 1, 0, h * Dim(2)) + narrow(hg, 1, 0, h * Dim(2)));
    const Tensor r = narrow(both, 1, 0, h), z = narrow(both, 1, h, h);
    const Tensor q = narrow(hg, 1, h * Dim(2), h);
    const Tensor n = tanh(narrow(xg, 1, h * Dim(2), h) + r * q);
    state = n + z * (state - n);
    ys[static_cast<size_t>(t)] = state;
    if (b.want_hidden) saved[static_cast<size_t>(t)] = cat({both, n, q}, 1);
  }
  b.out[0] = stack(ys, 0);
  b.out[1] = std::move(state);
  if (b.want_hidden) b.out[2] = stack(saved, 0);
}

// Replaces an absent gradient by zeros.
Tensor or_zeros(Tensor g, const Tensor& like) { return g.defined() ? g : zeros_like(like); }

void gru_backward_body(BodyCall& b) {
  const bool reverse = b.get_attrs<LstmAttrs>().reverse;
  const Tensor &gy = b.in[0], &gsaved = b.in[2], &w_hh = b.in[3], &h0 = b.in[4], &y = b.in[5];
  const int64_t steps = y.size(0);
  const Dim h = h0.shape(1);
  std::vector<Tensor> gx(static_cast<size_t>(steps)), gh(gx.size());
  Tensor carried = b.in[1];
  for (int64_t k = steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, steps, reverse);
    const Tensor g = or_zeros(plus(at_step(gy, t), std::move(carried)), h0);
    const Tensor before = k ? y.select(0, step_at(k - 1, steps, reverse)) : h0;
    const Tensor s = b.in[6].select(0, t), extra = at_step(gsaved, t);
    auto part = [&](const Tensor& from, int i) { return narrow(from, 1, h * Dim(i), h); };
    auto with_extra = [&](Tensor v, int i) {
      return extra.defined() ? std::move(v) + part(extra, i) : v;
    };
    const Tensor r = part(s, 0), z = part(s, 1), n = part(s, 2), q = part(s, 3);
    const Tensor an = with_extra(g * (1 - z), 2) * (1 - n * n);
    const Tensor az = with_extra(g * (before - n), 1) * z * (1 - z);
    const Tensor ar = with_extra(an * q, 0) * r * (1 - r);
    gx[static_cast<size_t>(t)] = cat({ar, az, an}, 1);
    gh[static_cast<size_t>(t)] = cat({ar, az, with_extra(an * r, 3)}, 1);
    carried = g * z + matmul(gh[static_cast<size_t>(t)], w_hh);
  }
  b.out[0] = stack(gx, 0);
  b.out[1] = stack(gh, 0);
  b.out[2] = std::move(carried);
}

void rnn_body(BodyCall& b) {
  const auto& a = b.get_attrs<RnnAttrs>();
  const Tensor &x = b.in[0], &w_hh = b.in[3], &b_ih = b.in[4], &b_hh = b.in[5];
  const Tensor all = linear(x, b.in[2], plus(b_ih, b_hh));
  const int64_t steps = x.size(0);
  std::vector<Tensor> ys(static_cast<size_t>(steps));
  Tensor state = b.in[1];
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = step_at(k, steps, a.reverse);
    Tensor g = all.select(0, t) + times_transposed(state, w_hh);
    state = a.relu ? relu(std::move(g)) : tanh(std::move(g));
    ys[static_cast<size_t>(t)] = state;
  }
  b.out[0] = stack(ys, 0);
  b.out[1] = std::move(state);
}

void rnn_backward_body(BodyCall& b) {
  const auto& a = b.get_attrs<RnnAttrs>();
  const Tensor &gy = b.in[0], &w_hh = b.in[2], &y = b.in[3];
  const int64_t steps = y.size(0);
  std::vector<Tensor> gates(static_cast<size_t>(steps));
  Tensor carried = b.in[1];
  for (int64_t k = steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, steps, a.reverse);
    const Tensor at = y.select(0, t), g = or_zeros(plus(at_step(gy, t), std::move(carried)), at);
    Tensor& out = gates[static_cast<size_t>(t)];
    out = a.relu ? where(at > 0, g, 0) : g * (1 - at * at);
    carried = matmul(out, w_hh);
  }
  b.out[0] = stack(gates, 0);
  b.out[1] = std::move(carried);
}

// ---- derivatives

// Gradients of x, both weights and both biases from those of the matmuls with x and with h.
void weights_vjp(VjpCall& c, const Tensor& gx, const Tensor& gh, bool reverse) {
  const SourceLocation loc = c.loc();
  const MatmulAttrs turned{true, false};
  const bool same = gx.impl() == gh.impl();
  const Tensor x_rows = flat_rows(gx, loc), h_rows = same ? x_rows : flat_rows(gh, loc);
  if (c.needs(0)) c.results[0] = matmul(gx, c.in(2), loc);
  if (c.needs(2)) c.results[2] = matmul(x_rows, flat_rows(c.in(0), loc), turned, loc);
  if (c.needs(3)) {
    const Tensor before = states_before(c.out(0), c.in(1), reverse, loc);
    c.results[3] = matmul(h_rows, flat_rows(before, loc), turned, loc);
  }
  if (c.has(4) && c.needs(4)) c.results[4] = sum(x_rows, {0}, false, loc);
  if (c.has(5) && c.needs(5))
    c.results[5] = same && c.results[4].defined() ? c.results[4] : sum(h_rows, {0}, false, loc);
}

void gru_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<LstmAttrs>();
  const SourceLocation loc = c.loc();
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(c.grads[0], loc), Operand(c.grads[1], loc), Operand(c.grads[2], loc),
                   Operand(c.in(3), loc),    Operand(c.in(1), loc),    Operand(c.out(0), loc),
                   Operand(c.out(2), loc)};
  apply(op::gru_backward, &a, ins, out, loc);
  if (c.needs(1)) c.results[1] = out[2];
  weights_vjp(c, out[0], out[1], a.reverse);
}

void rnn_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<RnnAttrs>();
  const SourceLocation loc = c.loc();
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(c.grads[0], loc), Operand(c.grads[1], loc), Operand(c.in(3), loc),
                   Operand(c.out(0), loc)};
  apply(op::rnn_backward, &a, ins, out, loc);
  if (c.needs(1)) c.results[1] = out[1];
  weights_vjp(c, out[0], out[0], a.reverse);
}

double layer_flops(const InferCall& c) {
  const Shape &x = c.in[0].shape, &w = c.in[3].shape;
  const double rows = static_cast<double>((x[0] * x[1]).value());
  const double h = static_cast<double>(w[1].value()), i = static_cast<double>(x[2].value());
  return 2 * rows * static_cast<double>(w[0].value()) * (h + i);
}
// The recurrent matmuls of every step; those with x and the weights are separate rows.
double recurrent_flops(const Shape& w, const Shape& y) {
  return 2 * static_cast<double>((y[0] * y[1]).value()) *
         static_cast<double>((w[0] * w[1]).value());
}
double gru_backward_flops(const InferCall& c) {
  return recurrent_flops(c.in[3].shape, c.in[5].shape);
}
double rnn_backward_flops(const InferCall& c) {
  return recurrent_flops(c.in[2].shape, c.in[3].shape);
}

}  // namespace

namespace op {
constinit const OpDef gru =
    composite("gru", {"x", "h0", "w_ih", "w_hh", "b_ih?", "b_hh?"}, fields<LstmAttrs>(), gru_body)
        .outputs({"y", "hn", "saved!"})
        .infer(gru_infer)
        .vjp(gru_vjp, 15, 5)
        .autocast(Autocast::low)
        .flops(layer_flops)
        .doc("One GRU layer in one direction over x [t, n, i].");
constinit const OpDef gru_backward =
    composite("gru_backward", {"gy?", "ghn?", "gsaved?", "w_hh", "h0", "y", "saved"},
              fields<LstmAttrs>(), gru_backward_body)
        .outputs({"gx", "gh", "gh0"})
        .infer(gru_backward_infer)
        .flops(gru_backward_flops)
        .doc("Gradients of gru with respect to its matmuls with x and with h, and to h0.");
constinit const OpDef rnn =
    composite("rnn", {"x", "h0", "w_ih", "w_hh", "b_ih?", "b_hh?"}, fields<RnnAttrs>(), rnn_body)
        .outputs({"y", "hn"})
        .infer(rnn_infer)
        .vjp(rnn_vjp, 15, 1)
        .autocast(Autocast::low)
        .flops(layer_flops)
        .doc("One layer of tanh (or relu) of both matmuls in one direction over x [t, n, i].");
constinit const OpDef rnn_backward =
    composite("rnn_backward", {"gy?", "ghn?", "w_hh", "y"}, fields<RnnAttrs>(), rnn_backward_body)
        .outputs({"ggates", "gh0"})
        .infer(rnn_backward_infer)
        .flops(rnn_backward_flops)
        .doc("Gradients of rnn with respect to its pre-activation sums, and to h0.");
}  // namespace op

}  // namespace tandem
