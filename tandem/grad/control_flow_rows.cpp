// SPDX-License-Identifier: Apache-2.0
// The rows cond, while_loop and scan: shape rules and the loops that run a body.
#include <numeric>

#include "tandem/grad/control_flow_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/batch.h"
#include "tandem/graph/vjp.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace control {
namespace {

// Which inputs of the row are passed to `body` (or to `other`).
std::vector<size_t> inputs_of(const OpDef& op, const ControlAttrs& a, size_t n_in, bool other) {
  const auto carries = static_cast<size_t>(a.carries), own = static_cast<size_t>(a.sequences);
  const size_t first = &op == &op::cond ? 1 : 0;
  std::vector<size_t> at;
  for (size_t i = 0; i < carries; ++i) at.push_back(first + i);
  if (&op == &op::scan) {
    for (size_t i = carries; i < n_in; ++i) at.push_back(i);
    return at;
  }
  const size_t from = first + carries + (other ? own : 0);
  const size_t to = other ? n_in : first + carries + own;
  for (size_t i = from; i < to; ++i) at.push_back(i);
  return at;
}

Symbols symbols_for(const OpDef& op, const ControlAttrs& a, std::span<const Shape> in, bool other) {
  Symbols symbols;
  const Graph& g = graph_of(other ? a.other : a.body);
  std::vector<size_t> at = inputs_of(op, a, in.size(), other);
  for (size_t i = 0; i < at.size() && i < g.inputs.size(); ++i) {
    const bool cut = &op == &op::scan && i >= static_cast<size_t>(a.carries) &&
                     i < static_cast<size_t>(a.carries + a.sequences);
    const Shape &own = g.inputs[i].shape(), &given = in[at[i]];
    for (int d = 0; d < own.rank(); ++d)
      if (own[d].is_symbolic() && !given[d + cut].is_symbolic())
        symbols.emplace_back(own[d], given[d + cut].value());
  }
  return symbols;
}

void control_infer(InferCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  TD_CHECK(dynamic_cast<const Graph*>(a.body.get()), Value, "the attribute body holds no graph");
  std::vector<Shape> shapes;
  for (const Spec& s : c.in) shapes.push_back(s.shape);
  Layout l = layout_of(results_of(c.op, a, shapes));
  for (size_t k = 0; k < kMaxOpOuts; ++k)
    c.out[k] = k < l.groups.size() ? l.groups[k] : Spec(DType::b8, Shape(0));
}

double no_cost(const InferCall&) { return 0; }

// ---- running

Tensor tensor_of(const Array& a) {
  const Shape shape(std::span<const int64_t>(a.shape, a.rank));
  if (a.contiguous || a.numel == 0)
    return Tensor(Ref<detail::TensorImpl>::adopt(
        detail::new_external(shape, a.dtype, a.data, false, nullptr, nullptr)));
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, a.dtype, Device{})));
  detail::copy_array(array_of(t), a);
  return t;
}

// Writes `v` as elements [start, ...) of a flat output.
void put(const Array& flat, int64_t start, const Tensor& v) {
  if (v.numel() == 0) return;
  Array to = array_of(v);
  const Strides strides = contiguous_strides(v.shape());
  to.data = flat.as<char>() + start * static_cast<int64_t>(size_of(flat.dtype));
  to.strides = strides.data();
  to.contiguous = true;
  detail::copy_array(to, array_of(v));
}

Tensors picked(const Tensors& all, const std::vector<size_t>& at, size_t from) {
  Tensors out;
  for (size_t i = from; i < at.size(); ++i) out.push_back(all[at[i]]);
  return out;
}

void run_scan(const KernelCall& k, const ControlAttrs& a, const Layout& l, const Tensors& in,
              TensorFn body) {
  const auto carries = static_cast<size_t>(a.carries), xs = static_cast<size_t>(a.sequences);
  const int64_t length = xs ? in[carries].size(0) : a.length[0].value();
  Tensors state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carries));
  for (int64_t n = 0; n < length; ++n) {
    const int64_t t = a.reverse ? length - 1 - n : n;
    Tensors x = state;
    for (size_t i = 0; i < xs; ++i) x.push_back(select(in[carries + i], 0, t));
    for (size_t i = carries + xs; i < in.size(); ++i) x.push_back(in[i]);
    Tensors y = run_inside(k.rng, t, body, x);
    for (size_t i = 0; i < carries; ++i) state[i] = std::move(y[i]);
    for (size_t i = carries; i < y.size(); ++i)
      put(k.out[l.pieces[i].group], l.pieces[i].start.value() + t * y[i].numel(), y[i]);
  }
  for (size_t i = 0; i < carries; ++i)
    put(k.out[l.pieces[i].group], l.pieces[i].start.value(), state[i]);
}

Tensors run_while(const ControlAttrs& a, const Tensors& in, TensorFn body, TensorFn other,
                  RngKey key) {
  const auto carries = static_cast<std::ptrdiff_t>(a.carries);
  Tensors state(in.begin(), in.begin() + carries);
  const Tensors of_body = picked(in, inputs_of(op::while_loop, a, in.size(), false), a.carries);
  const Tensors of_cond = picked(in, inputs_of(op::while_loop, a, in.size(), true), a.carries);
  bool on = true;
  const auto step = [&](std::span<const Tensor> now) {
    Tensors x(now.begin(), now.end());
    x.insert(x.end(), of_cond.begin(), of_cond.end());
    on = other(x)[0].reshape({}).item<bool>();
    if (!on) return Tensors();
    x.assign(now.begin(), now.end());
    x.insert(x.end(), of_body.begin(), of_body.end());
    return run_inside(detail::next_rng_key(), 0, body, x);
  };
  for (int64_t n = 0; a.max_steps == 0 || n < a.max_steps; ++n) {
    Tensors next = run_inside(key, n, step, state);
    if (!on) break;
    state = std::move(next);
  }
  return state;
}

void control_loops(const KernelCall& k) {
  const auto& a = k.get_attrs<ControlAttrs>();
  const auto walk = [](const Ref<RefCounted>& g) {
    return [&g](std::span<const Tensor> x) { return run(graph_of(g), x); };
  };
  detail::run_control(k, walk(a.body), walk(a.other));
}

}  // namespace

Layout layout_of(std::span<const Spec> results) {
  Layout l;
  for (const Spec& s : results) {
    size_t g = 0;
    while (g < l.groups.size() && l.groups[g].dtype != s.dtype) ++g;
    if (g == l.groups.size()) l.groups.emplace_back(s.dtype, Shape{Dim(0)});
    Dim& size = l.groups[g].shape[0];
    l.pieces.push_back({s, static_cast<int>(g), size});
    size = size + s.shape.numel();
  }
  TD_CHECK(l.groups.size() <= static_cast<size_t>(kMaxOpOuts), Unsupported,
           "results of {} dtypes\nAt most {} are possible: cast some.", l.groups.size(),
           kMaxOpOuts);
  return l;
}

std::vector<Spec> results_of(const OpDef& op, const ControlAttrs& a, std::span<const Shape> in) {
  const Symbols symbols = symbols_for(op, a, in, false);
  std::vector<Spec> out;
  const std::vector<Tensor>& y = graph_of(a.body).outputs;
  for (size_t i = 0; i < y.size(); ++i) {
    Spec s(y[i].dtype(), Shape{});
    if (&op == &op::scan && i >= static_cast<size_t>(a.carries))
      s.shape.push_back(a.sequences ? in[static_cast<size_t>(a.carries)][0] : a.length[0]);
    for (Dim d : y[i].shape())
      s.shape.push_back(d.is_symbolic() && !symbols.empty() ? Dim(d.evaluate(symbols)) : d);
    out.push_back(s);
  }
  return out;
}

Tensor unpack(const Layout& l, size_t k, std::span<const Tensor> groups, SourceLocation loc) {
  const Layout::Piece& p = l.pieces[k];
  const Tensor& flat = groups[static_cast<size_t>(p.group)];
  if (!flat.defined()) return {};
  return reshape(narrow(flat, 0, p.start, p.spec.shape.numel(), loc), p.spec.shape, loc);
}

Tensors call_row(const OpDef& op, const ControlAttrs& a, std::span<const Tensor> in,
                 SourceLocation loc, const RngKey* replay) {
  std::vector<Operand> operands;
  operands.reserve(in.size());
  std::vector<Shape> shapes;
  for (const Tensor& t : in) {
    operands.emplace_back(t, loc);
    shapes.push_back(t.shape());
  }
  Tensor groups[kMaxOpOuts];
  ApplyOptions options;
  options.rng = replay;
  apply(op, &a, operands, groups, loc, options);
  Layout l = layout_of(results_of(op, a, shapes));
  Tensors out;
  for (size_t k = 0; k < l.pieces.size(); ++k) out.push_back(unpack(l, k, groups, loc));
  return out;
}

}  // namespace control

namespace detail {

using namespace control;

std::vector<std::pair<Dim, int64_t>> control_symbols(const KernelCall& k, bool other) {
  std::vector<Shape> shapes;
  for (int i = 0; i < k.n_in; ++i)
    shapes.emplace_back(std::span<const int64_t>(k.in[i].shape, k.in[i].rank));
  return symbols_for(k.op, k.get_attrs<ControlAttrs>(), shapes, other);
}

void run_control(const KernelCall& k, TensorFn body, TensorFn other) {
  NoGradGuard no_grad;
  const auto& a = k.get_attrs<ControlAttrs>();
  Tensors in;
  std::vector<Shape> shapes;
  for (int i = 0; i < k.n_in; ++i) {
    in.push_back(tensor_of(k.in[i]));
    shapes.push_back(in.back().shape());
  }
  const Layout l = layout_of(results_of(k.op, a, shapes));
  if (&k.op == &op::scan) return run_scan(k, a, l, in, body);
  Tensors out;
  if (&k.op == &op::while_loop) {
    out = run_while(a, in, body, other, k.rng);
  } else {
    const bool yes = in[0].reshape({}).item<bool>();
    Tensors x = picked(in, inputs_of(k.op, a, in.size(), !yes), 0);
    out = run_inside(k.rng, 0, yes ? body : other, x);
  }
  for (size_t i = 0; i < out.size(); ++i)
    put(k.out[l.pieces[i].group], l.pieces[i].start.value(), out[i]);
}

}  // namespace detail

namespace op {
constinit const OpDef cond =
    control_row("cond", {"pred", "xs*"}, fields<ControlAttrs>())
        .outputs({"y", "y1", "y2", "y3"})
        .infer(control::control_infer)
        .vjp(control::cond_vjp, 3)
        .batch(control::cond_batch)
        .reference(control::control_loops)
        .flops(control::no_cost)
        .flag(kRandom)
        .doc("One of two graphs, selected by a value; only that one runs.");
constinit const OpDef while_loop =
    control_row("while_loop", {"xs*"}, fields<ControlAttrs>())
        .outputs({"y", "y1", "y2", "y3"})
        .infer(control::control_infer)
        .vjp(control::while_vjp, 1)
        .batch(control::while_batch)
        .reference(control::control_loops)
        .flops(control::no_cost)
        .flag(kRandom)
        .doc("A graph repeated on its own results while another graph returns true.");
constinit const OpDef scan =
    control_row("scan", {"xs*"}, fields<ControlAttrs>())
        .outputs({"y", "y1", "y2", "y3"})
        .infer(control::control_infer)
        .vjp(control::scan_vjp, 1, 15)
        .batch(control::scan_batch)
        .reference(control::control_loops)
        .flops(control::no_cost)
        .flag(kRandom)
        .doc(
            "A graph over a carried state and the slices of sequences; returns the last state and "
            "the results of all steps.");
}  // namespace op

std::span<const OpDef* const> control_flow_rows() {
  static constexpr const OpDef* kRows[] = {&op::cond, &op::while_loop, &op::scan};
  return kRows;
}

}  // namespace tandem
