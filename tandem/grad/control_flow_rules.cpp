// SPDX-License-Identifier: Apache-2.0
// Derivatives and batch rules of cond, while_loop and scan, written with the public functions: the
// derivative of a scan is a scan in the other direction that reruns each step from the carry it
// started with, so it can itself be differentiated.
#include "tandem/grad/control_flow_internal.h"
#include "tandem/grad/engine_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/batch.h"
#include "tandem/graph/run/run_internal.h"
#include "tandem/graph/vjp.h"
#include "tandem/ops/control.h"
#include "tandem/ops/ops.h"

namespace tandem::control {
namespace {

Tensors variables(std::span<const Tensor> ts, bool again) {
  Tensors v;
  for (const Tensor& t : ts) v.push_back(variable(t, again));
  return v;
}

Tensor or_zeros(Tensor g, const Tensor& like) {
  return g.defined() ? std::move(g) : zeros_like(like);
}

// Reruns a body, recorded: same draws, no side effects.
Tensors body_again(const Graph& g, std::span<const Tensor> in) {
  EnableGradGuard on;
  return run_again(g, in);
}
// The draws inside a batched body would depend on its place in the batch.
void refuse_draws(const Ref<RefCounted>& body, const char* op) {
  TD_CHECK(!body || !draws(graph_of(body)), Unsupported,
           "random numbers are drawn inside {} under vmap\nDraw them before and pass them in (for "
           "scan: as xs).",
           op);
}

struct Incoming {
  Layout layout;
  Tensors grads;  ///< per result; undefined where none arrived
};
Incoming incoming(const VjpCall& c, const OpDef& op, const ControlAttrs& a) {
  std::vector<Shape> shapes;
  for (int i = 0; i < c.n_in(); ++i) shapes.push_back(c.in_shape(i));
  Incoming r{layout_of(results_of(op, a, shapes)), {}};
  for (size_t k = 0; k < r.layout.pieces.size(); ++k)
    r.grads.push_back(unpack(r.layout, k, c.grads, c.loc()));
  return r;
}
Tensors all_inputs(const VjpCall& c) {
  Tensors in;
  for (int i = 0; i < c.n_in(); ++i) in.push_back(c.in(i));
  return in;
}
bool wants(const VjpCall& c, size_t i) {
  return c.needs(static_cast<int>(i)) && is_floating(c.in_dtype(static_cast<int>(i)));
}

// The carries at the start of each step of a scan.
Tensors starts_of(VjpCall& c, const ControlAttrs& a, const Incoming& y, const Tensors& in,
                  bool again) {
  const auto carries = static_cast<size_t>(a.carries), xs = static_cast<size_t>(a.sequences);
  Tensors starts;
  if (a.saves) {
    Tensor groups[kMaxOpOuts];
    for (size_t g = 0; g < y.layout.groups.size(); ++g) groups[g] = c.out(static_cast<int>(g));
    for (size_t i = 0; i < carries; ++i)
      starts.push_back(unpack(y.layout, carries + i, groups, c.loc()));
    return starts;
  }
  NoGradGuard quiet(!again);
  const auto step = [&](std::span<const Tensor> x) {
    Tensors all(x.begin(), x.end());
    all.insert(all.end(), in.begin() + static_cast<std::ptrdiff_t>(carries + xs), in.end());
    Tensors out = run_again(graph_of(a.body), all);
    out.resize(carries);
    out.insert(out.end(), x.begin(), x.begin() + static_cast<std::ptrdiff_t>(carries));
    return out;
  };
  Tensors out = control::scan(step, part(in, 0, carries), part(in, carries, xs),
                              {a.reverse, xs ? -1 : a.length[0].value()}, c.loc(), &c.node.rng);
  return Tensors(out.begin() + static_cast<std::ptrdiff_t>(carries), out.end());
}

}  // namespace

void scan_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  const Graph& g = graph_of(a.body);
  const auto carries = static_cast<size_t>(a.carries), xs = static_cast<size_t>(a.sequences);
  const bool again = is_grad_enabled();
  const Tensors in = all_inputs(c);
  const Incoming y = incoming(c, op::scan, a);
  // Carried back: gradients of floating carries and of constants; emitted: those of xs.
  std::vector<size_t> of_carry, of_x, of_const, of_y;
  for (size_t i = 0; i < in.size(); ++i) {
    if (i < carries && is_floating(in[i].dtype())) of_carry.push_back(i);
    if (i >= carries && i < carries + xs && wants(c, i)) of_x.push_back(i);
    if (i >= carries + xs && wants(c, i)) of_const.push_back(i);
  }
  Tensors state, sequences = starts_of(c, a, y, in, again);
  for (size_t i : of_carry) state.push_back(or_zeros(y.grads[i], in[i]));
  for (size_t i : of_const) state.push_back(zeros_like(in[i]));
  for (size_t i = 0; i < xs; ++i) sequences.push_back(in[carries + i]);
  for (size_t k = carries; k < y.grads.size(); ++k)
    if (y.grads[k].defined() && is_floating(y.grads[k].dtype())) {
      of_y.push_back(k);
      sequences.push_back(y.grads[k]);
    }
  const auto back = [&](std::span<const Tensor> t) {
    std::span<const Tensor> slices = t.subspan(state.size());
    Tensors x(slices.begin(), slices.begin() + static_cast<std::ptrdiff_t>(carries + xs));
    x.insert(x.end(), in.begin() + static_cast<std::ptrdiff_t>(carries + xs), in.end());
    x = variables(x, again);
    const Tensors value = body_again(g, x);
    Tensors grads(value.size()), targets, out;
    for (size_t k = 0; k < of_carry.size(); ++k) grads[of_carry[k]] = t[k];
    for (size_t k = 0; k < of_y.size(); ++k) grads[of_y[k]] = slices[carries + xs + k];
    for (const auto* list : {&of_carry, &of_const, &of_x})
      for (size_t i : *list) targets.push_back(x[i]);
    Tensors d = pull(value, grads, targets, again, c.loc());
    for (size_t k = 0; k < d.size(); ++k) {
      Tensor next = or_zeros(std::move(d[k]), targets[k]);
      const bool sums = k >= of_carry.size() && k < state.size();
      out.push_back(sums ? t[k] + next : std::move(next));
    }
    return out;
  };
  const ScanOptions options{!a.reverse, sequences.empty() ? a.length[0].value() : -1};
  Tensors d = control::scan(back, state, sequences, options, c.loc(), &c.node.rng);
  size_t k = 0;
  for (size_t i : of_carry) {
    if (c.needs(static_cast<int>(i))) c.results[i] = d[k];
    ++k;
  }
  for (size_t i : of_const) c.results[i] = d[k++];
  for (size_t i : of_x) c.results[i] = d[k++];
}

void while_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  TD_CHECK(a.max_steps > 0, Unsupported,
           "a derivative through while_loop needs a bound on its steps\nGive "
           "{{.max_steps = N}}.");
  const auto carries = static_cast<size_t>(a.carries), own = static_cast<size_t>(a.sequences);
  const bool again = is_grad_enabled();
  const Incoming y = incoming(c, op::while_loop, a);
  Tensors in = variables(all_inputs(c), again), targets;
  const auto with = [&](std::span<const Tensor> state, size_t from, size_t n) {
    Tensors x(state.begin(), state.end());
    x.insert(x.end(), in.begin() + static_cast<std::ptrdiff_t>(from),
             in.begin() + static_cast<std::ptrdiff_t>(from + n));
    return x;
  };
  const auto body = [&](std::span<const Tensor> state) {
    return run_again(graph_of(a.body), with(state, carries, own));
  };
  const auto holds = [&](std::span<const Tensor> state) {
    return run_again(graph_of(a.other), with(state, carries + own, in.size() - carries - own));
  };
  Tensors value;
  {
    EnableGradGuard on;
    value = values_hidden()
                ? bounded_loop(holds, body, part(in, 0, carries), a.max_steps, c.loc(), &c.node.rng)
                : control::while_loop(holds, body, part(in, 0, carries), {a.max_steps}, c.loc(),
                                      &c.node.rng);
  }
  std::vector<size_t> at;
  for (size_t i = 0; i < in.size(); ++i)
    if (wants(c, i)) {
      at.push_back(i);
      targets.push_back(in[i]);
    }
  Tensors d = pull(value, y.grads, targets, again, c.loc());
  for (size_t k = 0; k < at.size(); ++k) c.results[at[k]] = d[k];
}

void cond_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  const bool again = is_grad_enabled();
  const Tensors in = all_inputs(c);
  const Incoming y = incoming(c, op::cond, a);
  const auto operands = static_cast<size_t>(a.carries), own = static_cast<size_t>(a.sequences);
  std::vector<size_t> at;
  for (size_t i = 1; i < in.size(); ++i)
    if (wants(c, i)) at.push_back(i);
  const auto back = [&](bool yes) {
    return [&, yes](std::span<const Tensor>) {
      const size_t from = 1 + operands + (yes ? 0 : own);
      const size_t to = yes ? 1 + operands + own : in.size();
      Tensors all = in, x, targets;
      std::vector<char> used(in.size());
      for (size_t i = 1; i < in.size(); ++i) {
        used[i] = i <= operands || (i >= from && i < to);
        if (!used[i]) continue;
        all[i] = variable(in[i], again);
        x.push_back(all[i]);
      }
      const Tensors value = body_again(graph_of(yes ? a.body : a.other), x);
      for (size_t i : at)
        if (used[i]) targets.push_back(all[i]);
      Tensors d = pull(value, y.grads, targets, again, c.loc()), out;
      size_t k = 0;
      for (size_t i : at) out.push_back(or_zeros(used[i] ? d[k++] : Tensor(), in[i]));
      return out;
    };
  };
  auto t = back(true), f = back(false);
  Tensors d = control::cond(in[0], t, f, {}, c.loc(), &c.node.rng);
  for (size_t k = 0; k < at.size(); ++k) c.results[at[k]] = d[k];
}

// ---- vmap: carries and results are batched, other inputs only if they already are

namespace {

Tensor with_batch(const Tensor& t, bool batched, Dim size) {
  if (batched) return t;
  Shape s{size};
  for (Dim d : t.shape()) s.push_back(d);
  return expand(unsqueeze(t, 0), s);
}

// Concatenates batched results, as the row does with those of one example.
void pack_batched(BatchCall& c, const OpDef& op, const Tensors& results) {
  const auto& a = c.get_attrs<ControlAttrs>();
  std::vector<Shape> shapes;
  for (const NodeInput& i : c.node.in) shapes.push_back(i.shape);
  const Layout l = layout_of(results_of(op, a, shapes));
  for (size_t g = 0; g < kMaxOpOuts; ++g) {
    std::vector<Tensor> parts;
    for (size_t k = 0; k < l.pieces.size(); ++k)
      if (l.pieces[k].group == static_cast<int>(g))
        parts.push_back(reshape(results[k], {c.batch_size, l.pieces[k].spec.shape.numel()}));
    c.out[g] = parts.empty() ? zeros({c.batch_size, Dim(0)}, DType::b8) : cat(parts, 1);
  }
}

}  // namespace

void scan_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  refuse_draws(a.body, "scan");
  const auto carries = static_cast<size_t>(a.carries), xs = static_cast<size_t>(a.sequences);
  Tensors state, sequences, fixed;
  std::vector<char> flags(carries, 1);
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (i < carries) {
      state.push_back(with_batch(c.in[i], c.batched[i], c.batch_size));
      continue;
    }
    flags.push_back(c.batched[i]);
    if (i >= carries + xs)
      fixed.push_back(c.in[i]);
    else
      sequences.push_back(c.batched[i] ? movedim(c.in[i], {1}, {0}) : c.in[i]);
  }
  const auto step = [&](std::span<const Tensor> x) {
    Tensors all(x.begin(), x.end());
    all.insert(all.end(), fixed.begin(), fixed.end());
    return run_batched(graph_of(a.body), c.batch_size, all, flags);
  };
  const ScanOptions options{a.reverse, xs ? -1 : a.length[0].value()};
  Tensors out = detail::scan_call(step, state, sequences, options, c.node.loc);
  for (size_t i = carries; i < out.size(); ++i) out[i] = movedim(out[i], {1}, {0});
  pack_batched(c, op::scan, out);
}

void while_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  refuse_draws(a.body, "while_loop");
  refuse_draws(a.other, "while_loop");
  const auto carries = static_cast<size_t>(a.carries), own = static_cast<size_t>(a.sequences);
  Tensors state;
  for (size_t i = 0; i < carries; ++i)
    state.push_back(with_batch(c.in[i], c.batched[i], c.batch_size));
  const auto of = [&](const Graph& g, std::span<const Tensor> x, size_t from, size_t to) {
    Tensors all(x.begin(), x.end());
    std::vector<char> flags(carries, 1);
    for (size_t i = from; i < to; ++i) {
      all.push_back(c.in[i]);
      flags.push_back(c.batched[i]);
    }
    return run_batched(g, c.batch_size, all, flags);
  };
  const auto holds = [&](std::span<const Tensor> x) {
    return of(graph_of(a.other), x, carries + own, c.in.size())[0].reshape({c.batch_size});
  };
  const auto any_holds = [&](std::span<const Tensor> x) { return Tensors{any(holds(x))}; };
  const auto step = [&](std::span<const Tensor> x) {
    Tensor on = holds(x);
    Tensors out = of(graph_of(a.body), x, carries, carries + own);
    for (size_t i = 0; i < out.size(); ++i) {
      Shape s{c.batch_size};
      for (int d = 1; d < out[i].dim(); ++d) s.push_back(1);
      out[i] = where(reshape(on, s), out[i], x[i]);
    }
    return out;
  };
  pack_batched(c, op::while_loop,
               detail::while_call(any_holds, step, state, {a.max_steps}, c.node.loc));
}

void cond_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ControlAttrs>();
  refuse_draws(a.body, "cond");
  refuse_draws(a.other, "cond");
  const auto operands = static_cast<size_t>(a.carries), own = static_cast<size_t>(a.sequences);
  const auto branch = [&](bool yes) {
    return [&, yes](std::span<const Tensor>) {
      Tensors x;
      std::vector<char> flags;
      for (size_t i = 1; i < c.in.size(); ++i) {
        const bool mine = i <= operands || (i <= operands + own) == yes;
        if (!mine) continue;
        x.push_back(c.in[i]);
        flags.push_back(c.batched[i]);
      }
      return run_batched(graph_of(yes ? a.body : a.other), c.batch_size, x, flags);
    };
  };
  auto t = branch(true), f = branch(false);
  if (!c.batched[0])
    return pack_batched(c, op::cond, detail::cond_call(c.in[0], t, f, {}, c.node.loc));
  Tensors yes = t({}), no = f({});
  const Tensor pred = reshape(c.in[0], {c.batch_size});
  for (size_t i = 0; i < yes.size(); ++i) {
    Shape s{c.batch_size};
    for (int d = 1; d < yes[i].dim(); ++d) s.push_back(1);
    yes[i] = where(reshape(pred, s), yes[i], no[i]);
  }
  pack_batched(c, op::cond, yes);
}

}  // namespace tandem::control
