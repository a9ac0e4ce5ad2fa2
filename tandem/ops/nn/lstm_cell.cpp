// SPDX-License-Identifier: Apache-2.0
// One LSTM step as rows: i, f, o = sigmoid, g = tanh of the gates, c' = f c + i g, h = o tanh(c').
// saved is [i, f, g, o, c'] concatenated; the backward row reads only that and the old c.
#include "tandem/base/math_prelude.h"
#include "tandem/ops/nn/rnn.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::Dense;

// ---- shape rules

void check_shape(const InferCall& c, int i, const char* name, const Shape& want) {
  if (!c.has(i)) return;
  const Spec& s = c.in[i];
  bool same = s.rank() == want.rank();
  for (int k = 0; same && k < want.rank(); ++k) same = dims_equal(s[k], want[k]);
  TD_CHECK(same, Shape, "{} is {}, expected {}", name, s.shape.to_string(), want.to_string());
}

void cell_infer(InferCall& c) {
  const Spec &gates = c.in[0], &state = c.in[1];
  TD_CHECK(state.rank() == 2, Shape, "c is {}, expected [n, hidden]", state.shape.to_string());
  TD_CHECK(is_floating(gates.dtype) && gates.dtype == state.dtype, DType,
           "gates are {}, c is {}: expected one floating dtype", to_string(gates.dtype),
           to_string(state.dtype));
  Dim n = state[0], h = state[1];
  check_shape(c, 0, "gates", {n, h * Dim(4)});
  c.out[0] = c.out[1] = Spec(state.dtype, state.shape, state.device);
  c.out[2] = Spec(state.dtype, {n, h * Dim(5)}, state.device);
}

void cell_backward_infer(InferCall& c) {
  const Spec& state = c.in[4];
  TD_CHECK(state.rank() == 2, Shape, "c is {}, expected [n, hidden]", state.shape.to_string());
  Dim n = state[0], h = state[1];
  check_shape(c, 0, "gh", state.shape);
  check_shape(c, 1, "gc", state.shape);
  check_shape(c, 2, "gsaved", {n, h * Dim(5)});
  check_shape(c, 3, "saved", {n, h * Dim(5)});
  c.out[0] = Spec(state.dtype, {n, h * Dim(4)}, state.device);
  c.out[1] = Spec(state.dtype, state.shape, state.device);
}

// ---- loops, in f32 or f64

float sigmoid_of(float x) { return tdm_sigmoidf(x); }
double sigmoid_of(double x) { return tdm_sigmoid(x); }
float tanh_of(float x) { return tdm_tanhf(x); }
double tanh_of(double x) { return tdm_tanh(x); }

template <class T>
Dense<T> dense_or_empty(const Array& a) {
  return Dense<T>(a.present() ? a : Array());
}

template <class T>
void cell_loops(const KernelCall& call) {
  int64_t n = call.in[1].shape[0], h = call.in[1].shape[1];
  Dense<T> gates(call.in[0]), c(call.in[1]), hy(n * h), cy(n * h), saved(n * h * 5);
  detail::parallel_for_rows(n, h * 64, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* g = gates.get() + r * 4 * h;
      T* s = saved.get() + r * 5 * h;
      for (int64_t k = 0; k < h; ++k) {
        T i = sigmoid_of(g[k]), f = sigmoid_of(g[h + k]);
        T u = tanh_of(g[2 * h + k]), o = sigmoid_of(g[3 * h + k]);
        T v = f * c[r * h + k] + i * u;
        s[k] = i;
        s[h + k] = f;
        s[2 * h + k] = u;
        s[3 * h + k] = o;
        s[4 * h + k] = v;
        cy[r * h + k] = v;
        hy[r * h + k] = o * tanh_of(v);
      }
    }
  });
  hy.store(call.out[0]);
  cy.store(call.out[1]);
  saved.store(call.out[2]);
}

template <class T>
void cell_backward_loops(const KernelCall& call) {
  int64_t n = call.in[4].shape[0], h = call.in[4].shape[1];
  Dense<T> gh = dense_or_empty<T>(call.in[0]), gc = dense_or_empty<T>(call.in[1]),
           gs = dense_or_empty<T>(call.in[2]), saved(call.in[3]), c(call.in[4]);
  Dense<T> gg(n * h * 4), gp(n * h);
  detail::parallel_for_rows(n, h * 32, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      for (int64_t k = 0; k < h; ++k) {
        const T* s = saved.get() + r * 5 * h + k;
        const T* e = gs.get() ? gs.get() + r * 5 * h + k : nullptr;
        T i = s[0], f = s[h], u = s[2 * h], o = s[3 * h], t = tanh_of(s[4 * h]);
        T dh = gh.get() ? gh[r * h + k] : T(0), dc = gc.get() ? gc[r * h + k] : T(0);
        dc += dh * o * (1 - t * t) + (e ? e[4 * h] : T(0));
        T di = dc * u + (e ? e[0] : T(0)), df = dc * c[r * h + k] + (e ? e[h] : T(0));
        T du = dc * i + (e ? e[2 * h] : T(0)), od = dh * t + (e ? e[3 * h] : T(0));
        T* g = gg.get() + r * 4 * h + k;
        g[0] = di * i * (1 - i);
        g[h] = df * f * (1 - f);
        g[2 * h] = du * (1 - u * u);
        g[3 * h] = od * o * (1 - o);
        gp[r * h + k] = dc * f;
      }
  });
  gg.store(call.out[0]);
  gp.store(call.out[1]);
}

void cell_reference(const KernelCall& c) {
  c.in[1].dtype == DType::f64 ? cell_loops<double>(c) : cell_loops<float>(c);
}
void cell_backward_reference(const KernelCall& c) {
  c.in[4].dtype == DType::f64 ? cell_backward_loops<double>(c) : cell_backward_loops<float>(c);
}

// ---- derivatives

void cell_vjp(VjpCall& c) {
  SourceLocation loc = c.loc();
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(c.grads[0], loc), Operand(c.grads[1], loc), Operand(c.grads[2], loc),
                   Operand(c.out(2), loc), Operand(c.in(1), loc)};
  apply(op::lstm_cell_backward, nullptr, ins, out, loc);
  c.results[0] = std::move(out[0]);
  c.results[1] = std::move(out[1]);
}

Tensor part(const Tensor& t, int i, Dim h) { return narrow(t, 1, h * Dim(i), h); }

// The parts of the step's gradient, as in cell_backward_loops.
struct CellState {
  Tensor i, f, u, o, t, gh, tanh_derivative;  // tanh_derivative = 1 - t^2
  Tensor dc, di, df, du, od;
};

Tensor sum_of(Tensor a, const Tensor& b) {
  return !b.defined() ? a : a.defined() ? std::move(a) + b : b;
}

CellState cell_state_of(const VjpCall& c, Dim h) {
  CellState s;
  const Tensor &saved = c.in(3), &cell = c.in(4);
  s.i = part(saved, 0, h);
  s.f = part(saved, 1, h);
  s.u = part(saved, 2, h);
  s.o = part(saved, 3, h);
  s.t = part(saved, 4, h).tanh();
  s.tanh_derivative = 1.0 - s.t.square();
  if (c.has(0)) s.gh = c.in(0);
  auto extra = [&](int k) { return c.has(2) ? part(c.in(2), k, h) : Tensor(); };
  if (c.has(1)) s.dc = c.in(1);
  if (s.gh.defined()) s.dc = sum_of(s.gh * s.o * s.tanh_derivative, s.dc);
  s.dc = sum_of(extra(4), s.dc);
  if (s.dc.defined()) {
    s.di = sum_of(s.dc * s.u, extra(0));
    s.df = sum_of(s.dc * cell, extra(1));
    s.du = sum_of(s.dc * s.i, extra(2));
  }
  s.od = s.gh.defined() ? sum_of(s.gh * s.t, extra(3)) : extra(3);
  return s;
}

Tensor times(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() ? a * b : Tensor();
}
Tensor or_zeros_like(Tensor t, const Tensor& like) { return t.defined() ? t : like * 0.0; }

// Gradients of ggates = (di i (1-i), df f (1-f), du (1-u^2), od o (1-o)) and gp = dc f.
void cell_backward_vjp(VjpCall& c) {
  const Tensor& cell = c.in(4);
  Dim h = cell.shape(1);
  CellState s = cell_state_of(c, h);
  auto up = [&](int k) { return c.grads[0].defined() ? part(c.grads[0], k, h) : Tensor(); };
  Tensor ui = up(0), uf = up(1), uu = up(2), uo = up(3), upast = c.grads[1];
  Tensor a = times(ui, s.i * (1.0 - s.i)), b = times(uf, s.f * (1.0 - s.f));
  Tensor d = times(uu, 1.0 - s.u.square()), e = times(uo, s.o * (1.0 - s.o));
  Tensor k =
      sum_of(sum_of(times(a, s.u), times(b, cell)), sum_of(times(d, s.i), times(upast, s.f)));
  if (c.has(0) && c.needs(0))
    c.results[0] = sum_of(times(e, s.t), times(k, s.o * s.tanh_derivative));
  if (c.has(1) && c.needs(1)) c.results[1] = k;
  const Tensor& zero = cell;
  if (c.has(2) && c.needs(2))
    c.results[2] = cat({or_zeros_like(a, zero), or_zeros_like(b, zero), or_zeros_like(d, zero),
                        or_zeros_like(e, zero), or_zeros_like(k, zero)},
                       1);
  if (c.needs(3)) {
    Tensor gi = sum_of(times(d, s.dc), times(times(ui, s.di), 1.0 - s.i * 2.0));
    Tensor gf = sum_of(times(upast, s.dc), times(times(uf, s.df), 1.0 - s.f * 2.0));
    Tensor gu = sum_of(times(a, s.dc), times(times(uu, s.du), s.u * -2.0));
    Tensor go =
        sum_of(times(k, times(s.gh, s.tanh_derivative)), times(times(uo, s.od), 1.0 - s.o * 2.0));
    Tensor gt = sum_of(times(e, s.gh), times(k, times(s.gh, s.o * s.t * -2.0)));
    c.results[3] = cat({or_zeros_like(gi, zero), or_zeros_like(gf, zero), or_zeros_like(gu, zero),
                        or_zeros_like(go, zero), or_zeros_like(times(gt, s.tanh_derivative), zero)},
                       1);
  }
  if (c.needs(4)) c.results[4] = times(b, s.dc);
}

// Rows are samples: the batch folds into them.
void cell_batch(BatchCall& c) {
  const OpDef& row = *c.node.op;
  SourceLocation loc = c.node.loc;
  Dim n = c.node.in[row.n_in - 1].shape[0];
  std::vector<Operand> ins;
  for (int i = 0; i < row.n_in; ++i)
    ins.emplace_back(c.has(i) ? detail::merge_dims(detail::with_batch(c, i), 0, loc) : Tensor(),
                     loc);
  Tensor out[kMaxOpOuts];
  apply(row, nullptr, ins, out, loc);
  for (int i = 0; i < row.shown(); ++i)
    c.out[i] = detail::split_dim(out[i], 0, c.batch_size, n, loc);
}

}  // namespace

namespace op {
constinit const OpDef lstm_cell =
    contraction("lstm_cell", {"gates", "c"})
        .outputs({"h", "c", "saved"})
        .infer(cell_infer)
        .vjp(cell_vjp, 2, 4)
        .batch(cell_batch)
        .reference(cell_reference)
        .doc("One LSTM step from the pre-activation gates and the old cell state.");
constinit const OpDef lstm_cell_backward =
    contraction("lstm_cell_backward", {"gh?", "gc?", "gsaved?", "saved", "c"})
        .outputs({"ggates", "gc"})
        .infer(cell_backward_infer)
        .vjp(cell_backward_vjp, 31)
        .batch(cell_batch)
        .reference(cell_backward_reference)
        .doc(
            "Gradients of lstm_cell with respect to the pre-activation gates and the old cell "
            "state.");
}  // namespace op

}  // namespace tandem
