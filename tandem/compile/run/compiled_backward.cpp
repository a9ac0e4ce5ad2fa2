// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/compiled_backward.h"

#include <algorithm>

#include "tandem/compile/run/executable.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/run/run_internal.h"
#include "tandem/ops/control.h"
#include "tandem/ops/view/create.h"

namespace tandem::detail {
namespace {

using compiler::Saved;

struct CompiledBackward : VjpClosure {
  DifferentiableCall call;
  std::vector<Tensor> saved, args, captures;
  std::vector<Tensor> cells;  ///< before the call
  std::vector<Spec> specs;    ///< of the outputs that have a gradient
  GeneratorState rng;         ///< as it stood before the call

  std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor>,
                               std::span<const Tensor> g) override {
    if (is_grad_enabled()) return recorded(x, g);
    std::vector<Tensor> in = saved;
    for (size_t k = 0; k < call.grad_outputs.size(); ++k)
      in.push_back(g[k].defined() ? g[k] : zeros(specs[k].shape, specs[k].dtype));
    std::vector<Tensor> out = call.backward->run(in, {}, &rng);
    out.resize(x.size());
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].defined()) out[i] = out[i].to(x[i].device());
    return out;
  }

  // Recorded: the function itself runs once more op by op, and its derivative on what that leaves.
  std::vector<Tensor> recorded(std::span<const Tensor> x, std::span<const Tensor> g) const {
    std::vector<Tensor> in = args, state = cells, variables;
    for (size_t i = 0; i < call.targets.size(); ++i) {
      variables.push_back(identity(x[i]));
      (call.targets[i].is_cell ? state : in)[call.targets[i].index] = variables.back();
    }
    const std::vector<Tensor> y = run_again(*call.graph, in, {&captures, &state, &rng, call.n_out});
    std::vector<Tensor> roots, grads;
    for (size_t k = 0; k < call.grad_outputs.size(); ++k)
      if (g[k].defined() && y[call.grad_outputs[k]].requires_grad()) {
        roots.push_back(y[call.grad_outputs[k]]);
        grads.push_back(g[k]);
      }
    if (roots.empty()) return std::vector<Tensor>(x.size());
    return grad(roots, variables,
                {.grad_outputs = grads, .create_graph = true, .allow_unused = true});
  }
};

// A row has few outputs: for a function with more, one node stands for it whose only output is
// empty, and nodes after it hand the gradients of a few outputs each to `parts`.
struct Collected : VjpClosure {
  Ref<CompiledBackward> whole;
  std::vector<Tensor> parts;
  std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor> y,
                               std::span<const Tensor>) override {
    const std::vector<Tensor> g = std::exchange(parts, std::vector<Tensor>(parts.size()));
    return whole->backward(x, y, g);
  }
};
struct Part : VjpClosure {
  Ref<Collected> all;
  size_t first = 0;
  std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor>,
                               std::span<const Tensor> g) override {
    for (size_t k = 0; k < g.size(); ++k) all->parts[first + k] = g[k];
    return {zeros(x[0].shape(), x[0].dtype())};
  }
};

// One node with these inputs and the values `y`, whose derivative is `closure`.
std::vector<Tensor> tape_node(std::span<const Tensor> x, std::span<const Tensor> y,
                              Ref<VjpClosure> closure, SourceLocation loc) {
  WithVjpAttrs a{std::move(closure), static_cast<int64_t>(x.size())};
  std::vector<Tensor> in(x.begin(), x.end());
  for (const Tensor& t : y) in.push_back(detached_alias(t));
  Tensor results[kMaxOpOuts];
  std::copy(y.begin(), y.end(), results);
  std::vector<uint8_t> present(in.size(), 1);
  std::vector<Scalar> numbers(in.size());
  record_tape(op::with_vjp, &a, in, numbers, present, results, user_line(loc), {});
  return std::vector<Tensor>(results, results + y.size());
}

// Put the derivative after the outputs that have one.
void attach(std::span<const Tensor> x, std::vector<Tensor>& out, Ref<CompiledBackward> closure,
            SourceLocation loc) {
  const std::vector<size_t> at = closure->call.grad_outputs;
  std::vector<Tensor> y;
  for (size_t k : at) y.push_back(std::move(out[k]));
  if (y.size() <= static_cast<size_t>(kMaxOpOuts)) {
    y = tape_node(x, y, std::move(closure), loc);
  } else {
    Ref<Collected> all = make_ref<Collected>();
    all->whole = std::move(closure);
    all->parts.resize(y.size());
    const std::vector<Tensor> token = tape_node(x, std::vector<Tensor>{zeros({0})}, all, loc);
    for (size_t k = 0; k < y.size(); k += kMaxOpOuts) {
      Ref<Part> part = make_ref<Part>();
      part->all = all;
      part->first = k;
      const size_t n = std::min<size_t>(kMaxOpOuts, y.size() - k);
      std::vector<Tensor> some =
          tape_node(token, std::span<const Tensor>(y).subspan(k, n), std::move(part), loc);
      std::move(some.begin(), some.end(), y.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (size_t k = 0; k < at.size(); ++k) out[at[k]] = std::move(y[k]);
}

// What the derivative may need of the state before the call.
Ref<CompiledBackward> before_call(DifferentiableCall call, const std::vector<Tensor>& args,
                                  std::vector<Tensor> captures) {
  Ref<CompiledBackward> c = make_ref<CompiledBackward>();
  c->rng = generator_state();
  for (const Tensor& t : args) c->args.push_back(detached_alias(t));
  for (const Graph::CellUse& u : call.graph->cells)
    c->cells.push_back(u.entry.defined() ? detached_alias(u.cell->read()) : Tensor());
  c->captures = std::move(captures);
  c->saved.resize(call.saved.size());
  for (size_t i = 0; i < call.saved.size(); ++i)
    if (call.saved[i].kind == Saved::cell) c->saved[i] = c->cells[call.saved[i].index];
  c->call = std::move(call);
  return c;
}

// What the forward program saved, once it has run.
void keep_saved(CompiledBackward& c, const std::vector<Tensor>& args,
                const std::vector<Tensor>& out) {
  for (size_t i = 0; i < c.saved.size(); ++i) {
    const Saved& s = c.call.saved[i];
    if (s.kind == Saved::output) c.saved[i] = out[s.index];
    if (s.kind == Saved::input) c.saved[i] = detached_alias(args[s.index]);
    if (s.kind == Saved::capture) c.saved[i] = c.captures[s.index];
  }
}

}  // namespace

std::vector<Tensor> run_differentiable(DifferentiableCall call, const std::vector<Tensor>& args,
                                       std::vector<Tensor> captures, SourceLocation loc) {
  // What the derivative reads of cells is their value before the call.
  std::vector<Tensor> x;
  for (const GradTarget& t : call.targets)
    x.push_back(t.is_cell ? call.graph->cells[t.index].cell->read() : args[t.index]);
  Ref<CompiledBackward> closure = before_call(std::move(call), args, std::move(captures));
  std::vector<Tensor> out;
  {
    NoGradGuard no_grad;
    out = closure->call.forward->run(args, closure->captures);
  }
  keep_saved(*closure, args, out);
  out.resize(closure->call.n_out);
  for (size_t k : closure->call.grad_outputs) closure->specs.push_back(spec_of(out[k]));
  attach(x, out, std::move(closure), loc);
  return out;
}

}  // namespace tandem::detail
