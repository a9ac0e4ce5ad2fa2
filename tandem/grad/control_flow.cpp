// SPDX-License-Identifier: Apache-2.0
// The three functions: one op in a trace and where gradients are recorded, so that both have the
// same derivative; else plain loops.
#include <algorithm>
#include <optional>

#include "tandem/grad/control_flow_internal.h"
#include "tandem/grad/engine_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/control.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace control {

Body trace_body(TensorFn f, std::span<const Spec> specs) {
  Body b;
  b.graph = trace([&](std::span<const Tensor> x) { return f(x); }, specs, Captures::as_inputs);
  for (const Graph::Capture& c : b.graph->captures) {
    b.captured.push_back(c.outer);
    b.graph->inputs.push_back(c.inner);
  }
  b.graph->captures.clear();
  if (DimChecks* outer = current_dim_checks())
    outer->equal.insert(outer->equal.end(), b.graph->checks.equal.begin(),
                        b.graph->checks.equal.end());
  return b;
}

void check_carry(const char* op, std::span<const Spec> carry, std::span<const Tensor> out) {
  TD_CHECK(out.size() >= carry.size(), Value, "{}: {} tensors are carried and {} are returned", op,
           carry.size(), out.size());
  for (size_t i = 0; i < carry.size(); ++i) {
    const Spec got = spec_of(out[i]);
    TD_CHECK(got.dtype == carry[i].dtype && got.rank() == carry[i].rank(), Shape,
             "tensor {} of the carry is {} and is returned as {}\nA carry keeps its shape and "
             "dtype: cast or reshape it.",
             i, carry[i].to_string(), got.to_string());
    for (int d = 0; d < got.rank(); ++d)
      TD_CHECK(dims_equal(got.shape[d], carry[i].shape[d]), Shape,
               "tensor {} of the carry is {} and is returned as {}\nA carry keeps its shape and "
               "dtype: cast or reshape it.",
               i, carry[i].to_string(), got.to_string());
  }
}

namespace {

std::vector<Spec> specs_of(std::span<const Tensor> ts) {
  std::vector<Spec> s;
  for (const Tensor& t : ts) s.push_back(spec_of(t));
  return s;
}
Spec slice_spec(const Tensor& x) {
  Spec s = spec_of(x);
  s.shape.erase(0);
  return s;
}
Tensors concatenated(std::span<const Tensor> a, std::span<const Tensor> b) {
  Tensors all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}
bool any_requires_grad(std::span<const Tensor> ts) {
  for (const Tensor& t : ts)
    if (t.requires_grad()) return true;
  return false;
}
void check_defined(std::span<const Tensor> ts, const char* what) {
  for (size_t i = 0; i < ts.size(); ++i)
    TD_CHECK(ts[i].defined(), Value, "{} {} is an undefined tensor", what, i);
}
bool read_pred(const Tensor& p, const char* what) {
  TD_CHECK(p.defined() && p.dtype() == DType::b8 && p.shape().numel() == Dim(1), Shape,
           "{} expects a bool of one element, got {}", what,
           p.defined() ? spec_of(p).to_string() : "an undefined tensor");
  return values_hidden() || p.reshape({}).item<bool>();
}

// What a function of control flow returns as one op; nothing where a plain loop does as well.
using Results = std::optional<Tensors>;
bool plain_will_do(std::span<const Tensor> in) {
  return !values_hidden() && !any_requires_grad(in);
}
// One op wherever values are hidden or a gradient is wanted. In eager code, what cannot be traced
// (a body that reads values, say) runs as it stands.
template <class Traced, class Plain>
Tensors one_op_or_plain(Traced one_op, Plain plain) {
  if (values_hidden()) return *one_op();
  if (is_grad_enabled()) {
    const GeneratorState before = generator_state();
    try {
      if (Results r = one_op()) return std::move(*r);
    } catch (const Error&) {}
    set_generator_state(before);
  }
  return plain();
}

// ---- scan

Tensors scan_eager(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
                   int64_t length, bool reverse, SourceLocation loc, RngKey key) {
  const std::vector<Spec> want = specs_of(carry);
  Tensors state(carry.begin(), carry.end());
  std::vector<Tensors> ys;
  for (int64_t k = 0; k < length; ++k) {
    const int64_t t = reverse ? length - 1 - k : k;
    Tensors in = state;
    for (const Tensor& x : xs) in.push_back(select(x, 0, t, loc));
    Tensors out = run_inside(key, t, f, in);
    check_carry("scan", want, out);
    for (size_t i = 0; i < state.size(); ++i) state[i] = out[i];
    ys.resize(out.size() - state.size());
    for (size_t i = 0; i < ys.size(); ++i) ys[i].push_back(out[state.size() + i]);
  }
  if (length == 0) {  // no step shows what y is, so it is traced
    std::vector<Spec> specs = want;
    for (const Tensor& x : xs) specs.push_back(slice_spec(x));
    Ref<Graph> g =
        trace([&](std::span<const Tensor> x) { return f(x); }, specs, Captures::as_inputs);
    check_carry("scan", want, g->outputs);
    for (size_t i = want.size(); i < g->outputs.size(); ++i) {
      Shape s{0};
      for (Dim d : g->outputs[i].shape()) s.push_back(d);
      state.push_back(zeros(s, g->outputs[i].dtype(), loc));
    }
    return state;
  }
  for (Tensors& y : ys) {
    if (reverse) std::reverse(y.begin(), y.end());
    state.push_back(stack(y, 0, loc));
  }
  return state;
}

Results scan_traced(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
                    Dim length, bool reverse, SourceLocation loc, const RngKey* replay) {
  const std::vector<Spec> want = specs_of(carry);
  std::vector<Spec> specs = want;
  for (const Tensor& x : xs) specs.push_back(slice_spec(x));
  Body b = trace_body(f, specs);
  check_carry("scan", want, b.graph->outputs);
  Tensors in = concatenated(concatenated(carry, xs), b.captured);
  if (plain_will_do(in)) return {};
  ControlAttrs a{
      b.graph,  {},     static_cast<int64_t>(carry.size()), static_cast<int64_t>(xs.size()),
      {length}, reverse};
  a.saves = is_grad_enabled() && any_requires_grad(in);
  const auto n = static_cast<std::ptrdiff_t>(carry.size());
  if (a.saves) {
    std::vector<Tensor>& out = b.graph->outputs;
    const Tensors starts(b.graph->inputs.begin(), b.graph->inputs.begin() + n);
    out.insert(out.begin() + n, starts.begin(), starts.end());
  }
  Tensors out = call_row(op::scan, a, in, loc, replay);
  if (a.saves) out.erase(out.begin() + n, out.begin() + 2 * n);
  return out;
}

// ---- cond

Results cond_traced(const Tensor& pred, TensorFn true_fn, TensorFn false_fn,
                    std::span<const Tensor> operands, SourceLocation loc, const RngKey* replay) {
  const std::vector<Spec> specs = specs_of(operands);
  Body t = trace_body(true_fn, specs), f = trace_body(false_fn, specs);
  const std::vector<Tensor>&a = t.graph->outputs, &b = f.graph->outputs;
  TD_CHECK(a.size() == b.size(), Value, "true_fn returns {} tensors, false_fn {}", a.size(),
           b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = a[i].dtype() == b[i].dtype() && a[i].dim() == b[i].dim();
    for (int d = 0; same && d < a[i].dim(); ++d)
      same = dims_equal(a[i].shape()[d], b[i].shape()[d]);
    TD_CHECK(same, Shape, "output {} is {} from true_fn and {} from false_fn", i,
             spec_of(a[i]).to_string(), spec_of(b[i]).to_string());
  }
  Tensors in =
      concatenated(concatenated(concatenated({&pred, 1}, operands), t.captured), f.captured);
  if (plain_will_do(in)) return {};
  if (a.empty()) return Tensors();
  ControlAttrs attrs{t.graph, f.graph, static_cast<int64_t>(operands.size())};
  attrs.sequences = static_cast<int64_t>(t.captured.size());
  return call_row(op::cond, attrs, in, loc, replay);
}

// ---- while_loop

// The derivative of a loop without a bound.
struct NoEnd : VjpClosure {
  std::vector<Tensor> backward(std::span<const Tensor>, std::span<const Tensor>,
                               std::span<const Tensor>) override {
    TD_FAIL(Unsupported,
            "a derivative through while_loop needs a bound on its steps\nGive "
            "{{.max_steps = N}}.");
  }
};

Tensors while_eager(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                    int64_t max_steps, SourceLocation loc, RngKey key) {
  const std::vector<Spec> want = specs_of(carry);
  Tensors state(carry.begin(), carry.end()), last;
  // The body draws as a cond's branch inside a step would: the derivative runs that form.
  bool on = true;
  const auto step = [&](std::span<const Tensor> x) {
    Tensors p = cond_fn(x);
    on = read_pred(p[0], "while_loop: cond_fn");
    if (!on) return Tensors();
    return run_inside(detail::next_rng_key(), 0, body_fn, x);
  };
  for (int64_t n = 0; max_steps == 0 || n < max_steps; ++n) {
    Tensors out = run_inside(key, n, step, state);
    if (!on) break;
    TD_CHECK(out.size() == want.size(), Value, "{} tensors are carried and {} are returned",
             want.size(), out.size());
    check_carry("while_loop", want, out);
    state = std::move(out);
    if (max_steps > 0 || !any_requires_grad(state)) continue;
    last = state;  // without max_steps no tape is kept: a derivative throws
    for (Tensor& t : state) t = t.detach();
  }
  if (last.empty()) return state;
  Tensors out;
  for (size_t i = 0; i < state.size(); ++i)
    out.push_back(last[i].requires_grad()
                      ? with_vjp({&last[i], 1}, {&state[i], 1}, make_ref<NoEnd>(), loc)[0]
                      : state[i]);
  return out;
}

Tensors while_traced(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                     int64_t max_steps, SourceLocation loc, const RngKey* replay) {
  const std::vector<Spec> want = specs_of(carry);
  Body b = trace_body(body_fn, want), p = trace_body(cond_fn, want);
  TD_CHECK(p.graph->outputs.size() == 1, Value, "cond_fn must return one tensor");
  read_pred(p.graph->outputs[0], "while_loop: cond_fn");
  TD_CHECK(b.graph->outputs.size() == want.size(), Value,
           "{} tensors are carried and {} are returned", want.size(), b.graph->outputs.size());
  check_carry("while_loop", want, b.graph->outputs);
  Tensors in = concatenated(carry, b.captured);
  if (max_steps > 0 && is_grad_enabled() && any_requires_grad(in))
    return bounded_loop(cond_fn, body_fn, carry, max_steps, loc, replay);
  ControlAttrs a{b.graph, p.graph, static_cast<int64_t>(carry.size())};
  a.sequences = static_cast<int64_t>(b.captured.size());
  a.max_steps = max_steps;
  return call_row(op::while_loop, a, concatenated(in, p.captured), loc, replay);
}

}  // namespace

// The state and whether the loop still runs: a cond_fn that draws must not restart a finished loop.
Tensors bounded_loop(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                     int64_t max_steps, SourceLocation loc, const RngKey* replay) {
  const auto step = [&](std::span<const Tensor> all) {
    const std::span<const Tensor> state = all.first(all.size() - 1);
    const auto stay = [](std::span<const Tensor> x) { return Tensors(x.begin(), x.end()); };
    const Tensor on = logical_and(all.back(), cond_fn(state)[0].reshape({}));
    Tensors out = control::cond(on, body_fn, stay, state, loc, nullptr);
    out.push_back(on);
    return out;
  };
  Tensors all(carry.begin(), carry.end());
  all.push_back(ones({}, DType::b8, loc));
  Tensors out = control::scan(step, all, {}, {.length = max_steps}, loc, replay);
  out.pop_back();
  return out;
}

Tensors run_inside(RngKey key, int64_t step, TensorFn f, std::span<const Tensor> x) {
  const GeneratorGuard own(detail::inner_generator(key, static_cast<uint64_t>(step)));
  return f(x);
}

bool draws(const Node& n) {
  if (n.op->family != Family::control || !n.op->has(kRandom)) return n.op->has(kRandom);
  const auto& a = *static_cast<const ControlAttrs*>(n.attrs.get());
  return draws(graph_of(a.body)) || (a.other && draws(graph_of(a.other)));
}
bool draws(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Ref<Node>& n) { return draws(*n); });
}

namespace {
RngKey key_of(const RngKey* replay) { return replay ? *replay : detail::next_rng_key(); }
}  // namespace

Tensors scan(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
             ScanOptions options, SourceLocation loc, const RngKey* replay) try {
  check_defined(carry, "tensor of the carry");
  check_defined(xs, "xs");
  Dim length = options.length;
  for (size_t i = 0; i < xs.size(); ++i) {
    TD_CHECK(xs[i].dim() > 0, Shape, "xs {} has no dimension to scan along", i);
    TD_CHECK(length == Dim(-1) || dims_equal(length, xs[i].shape(0)), Shape,
             "xs {} has {} slices, expected {}", i, xs[i].shape(0).to_string(), length.to_string());
    length = xs[i].shape(0);
  }
  TD_CHECK(length.is_symbolic() || length.raw() >= 0, Value,
           "the number of steps is unknown: xs has no tensor\nGive {{.length = N}}.");
  return one_op_or_plain(
      [&] { return scan_traced(f, carry, xs, length, options.reverse, loc, replay); },
      [&] {
        return scan_eager(f, carry, xs, length.value(), options.reverse, loc, key_of(replay));
      });
} catch (const Error& e) {
  rethrow_at(e, "scan", loc);
}

Tensors while_loop(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                   WhileOptions options, SourceLocation loc, const RngKey* replay) try {
  check_defined(carry, "tensor of the carry");
  TD_CHECK(options.max_steps >= 0, Value, "max_steps must not be negative, got {}",
           options.max_steps);
  if (values_hidden()) return while_traced(cond_fn, body_fn, carry, options.max_steps, loc, replay);
  const RngKey key = key_of(replay);
  const auto plain = [&](TensorFn body) {
    return while_eager(cond_fn, body, carry, options.max_steps, loc, key);
  };
  if (options.max_steps == 0) return plain(body_fn);
  return one_op_or_plain(
      [&]() -> Results {  // of as many steps as there are: one that is none changes no gradient
        int64_t steps = 0;
        {
          NoGradGuard no_grad;
          plain([&](std::span<const Tensor> x) { return ++steps, body_fn(x); });
        }
        return bounded_loop(cond_fn, body_fn, carry, steps, loc, &key);
      },
      [&] { return plain(body_fn); });
} catch (const Error& e) {
  rethrow_at(e, "while_loop", loc);
}

Tensors cond(const Tensor& pred, TensorFn true_fn, TensorFn false_fn,
             std::span<const Tensor> operands, SourceLocation loc, const RngKey* replay) try {
  check_defined(operands, "operand");
  const bool yes = read_pred(pred, "pred");
  return one_op_or_plain(
      [&] { return cond_traced(pred, true_fn, false_fn, operands, loc, replay); },
      [&] { return run_inside(key_of(replay), 0, yes ? true_fn : false_fn, operands); });
} catch (const Error& e) {
  rethrow_at(e, "cond", loc);
}

}  // namespace control

namespace detail {

void fail_structure(const char* op, const char* what, SourceLocation loc) {
  throw Error(ErrorKind::Value, what, "Numbers that change must be tensors.", op, loc, "");
}

Tensors scan_call(TensorFn f, std::span<const Tensor> carry, std::span<const Tensor> xs,
                  ScanOptions options, SourceLocation loc) {
  return control::scan(f, carry, xs, options, loc, nullptr);
}
Tensors while_call(TensorFn cond_fn, TensorFn body_fn, std::span<const Tensor> carry,
                   WhileOptions options, SourceLocation loc) {
  return control::while_loop(cond_fn, body_fn, carry, options, loc, nullptr);
}
Tensors cond_call(const Tensor& pred, TensorFn true_fn, TensorFn false_fn,
                  std::span<const Tensor> operands, SourceLocation loc) {
  return control::cond(pred, true_fn, false_fn, operands, loc, nullptr);
}

}  // namespace detail
}  // namespace tandem
