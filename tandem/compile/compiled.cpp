// SPDX-License-Identifier: Apache-2.0
// The cache of a compiled function: finds the specialisation that fits a call, or makes it: trace,
// passes, lowering. Inside another trace, under transforms and in anomaly mode fn runs as it is.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/compile/compile.h"
#include "tandem/compile/fit_memory.h"
#include "tandem/compile/segments.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/run_internal.h"
#include "tandem/ops/control.h"
#include "tandem/ops/create.h"

namespace tandem::detail {
namespace {

using compiler::Program;

// What else than arguments a specialisation was made for.
struct Mode {
  bool grad;
  uint32_t slow;
  DType autocast;
  int threads;
  bool operator==(const Mode&) const = default;
};
Mode present_mode() {
  const Context& c = context();
  uint32_t slow = c.slow & kAutocast;
  return {c.grad_enabled, slow, slow ? c.autocast_dtype : DType::f32, num_threads()};
}

struct Argument {
  Spec spec;
  bool requires_grad;
};

// One trace and the programs made of it.
struct Specialisation {
  Mode mode;
  std::string key;  ///< of the arguments that are no tensors
  std::vector<Argument> args;
  Ref<Graph> graph;
  std::string result_key;
  struct Sized {
    std::vector<int64_t> sizes;
    Ref<Executable> executable;
    Ref<Executable> backward;  ///< of a function that gradients go through
    std::vector<compiler::Saved> saved;
    uint64_t used = 0;
  };
  /// Of a function that gradients go through: its own outputs, those that have a gradient, and
  /// what the derivative is with respect to (an argument, or a cell of the graph).
  struct Target {
    bool is_cell;
    size_t index;
  };
  size_t n_out = 0;
  std::vector<size_t> grad_outputs;
  std::vector<Target> targets;
  bool differentiable() const { return !targets.empty(); }
  std::vector<Sized> sized;
  std::vector<char> cell_requires_grad, grad_present, grad_matters;
};

bool fits(const Specialisation& s, const CallParts& args, const Mode& mode) {
  if (!(s.mode == mode) || s.args.size() != args.tensors.size() || s.key != args.key) return false;
  for (size_t i = 0; i < s.args.size(); ++i) {
    const Tensor& t = args.tensors[i];
    const Spec& want = s.args[i].spec;
    if (t.dtype() != want.dtype || t.dim() != want.rank() ||
        t.requires_grad() != s.args[i].requires_grad)
      return false;
    for (int d = 0; d < want.rank(); ++d)
      if (!want.shape[d].is_symbolic() && !(want.shape[d] == t.shape()[d])) return false;
  }
  return true;
}

bool guards_hold(const Specialisation& s) {
  for (const Graph::Guard& g : s.graph->guards)
    if (*g.flag != g.value) return false;
  for (size_t i = 0; i < s.graph->cells.size(); ++i)
    if (s.graph->cells[i].cell->requires_grad() != static_cast<bool>(s.cell_requires_grad[i]))
      return false;
  for (size_t i = 0; i < s.graph->grads.size(); ++i) {
    if (!s.grad_matters[i]) continue;
    GradSlot& slot = *s.graph->grads[i].slot;
    std::lock_guard hold(slot.lock);
    slot.get();  // throws when a compiled step has consumed it
    if (slot.grad.defined() != static_cast<bool>(s.grad_present[i])) return false;
  }
  return Executable::cells_fit(*s.graph);
}

}  // namespace

struct CompiledCore::State {
  CompileOptions options;
  Where where;
  mutable std::mutex lock;  ///< of the cache; the first trace runs under it
  std::vector<std::unique_ptr<Specialisation>> all;
  CompileStats stats;
  uint64_t clock = 0;
  bool warned = false;
  Ref<Executable> last;
  Ref<Graph> last_graph;
  std::unique_ptr<compiler::SegmentCache> segments;

  std::unique_ptr<Specialisation> make(const CallParts& args, const Mode& mode, Body body);
  Specialisation::Sized& sized(Specialisation& s, const CallParts& args);
  void forget_oldest();
};

CompiledCore::CompiledCore(CompileOptions options, Where where)
    : state_(std::make_unique<State>()) {
  TD_CHECK(options.cache_size > 0, Value, "compile: cache_size must be positive, got {}",
           options.cache_size);
  // A function has a few segments for each path through it.
  state_->segments =
      std::make_unique<compiler::SegmentCache>(8 * static_cast<size_t>(options.cache_size));
  state_->options = std::move(options);
  state_->where = where;
}
CompiledCore::~CompiledCore() = default;

namespace {

// Record the derivative behind the function: gradients of the outputs become further inputs, those
// of arguments and cells further outputs. A function that calls backward() itself has none.
void add_derivative(Specialisation& s, std::vector<Tensor>& outputs) {
  Trace& t = *context().trace;
  for (const Graph::GradUse& u : t.graph->grads)
    if (u.stored) return;
  std::vector<Tensor> from, grads, to;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].defined() && outputs[i].requires_grad() && outputs[i].is_symbolic()) {
      s.grad_outputs.push_back(i);
      from.push_back(outputs[i]);
    }
  if (from.empty()) return;
  for (size_t i = 0; i < s.args.size(); ++i)
    if (s.args[i].requires_grad) {
      s.targets.push_back({false, i});
      to.push_back(t.graph->inputs[i]);
    }
  for (size_t i = 0; i < t.graph->cells.size(); ++i)
    if (const Tensor& entry = t.graph->cells[i].entry; entry.defined() && entry.requires_grad()) {
      s.targets.push_back({true, i});
      to.push_back(entry);
    }
  if (to.empty()) return s.grad_outputs.clear();
  for (const Tensor& y : from) {
    grads.push_back(t.placeholder(op::input, spec_of(y), false));
    t.graph->inputs.push_back(grads.back());
  }
  std::vector<Tensor> g = grad(from, to, {.grad_outputs = grads, .allow_unused = true});
  std::vector<Specialisation::Target> used;
  for (size_t i = 0; i < g.size(); ++i)
    if (g[i].defined()) {
      used.push_back(s.targets[i]);
      outputs.push_back(std::move(g[i]));
    }
  s.targets = std::move(used);
}

// The derivative of one call: holds what the forward program saved, and for a second derivative
// what the call saw.
struct CompiledBackward : VjpClosure {
  Ref<Executable> executable;
  Ref<Graph> graph;
  std::vector<Tensor> saved, args, captures;
  std::vector<Tensor> cells;  ///< before the call
  std::vector<Specialisation::Target> targets;
  std::vector<size_t> grad_outputs;
  std::vector<Spec> specs;  ///< of those outputs
  GeneratorState rng;       ///< as it stood before the call
  size_t n_out = 0;

  std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor>,
                               std::span<const Tensor> g) override {
    if (is_grad_enabled()) return again(x, g);
    std::vector<Tensor> in = saved;
    for (size_t k = 0; k < grad_outputs.size(); ++k)
      in.push_back(g[k].defined() ? g[k] : zeros(specs[k].shape, specs[k].dtype));
    std::vector<Tensor> out = executable->run(in, {}, &rng);
    out.resize(x.size());
    return out;
  }

  // Recorded: the function itself runs once more op by op, and its derivative on what that leaves.
  std::vector<Tensor> again(std::span<const Tensor> x, std::span<const Tensor> g) const {
    std::vector<Tensor> in = args, state = cells, variables;
    for (size_t i = 0; i < targets.size(); ++i) {
      variables.push_back(identity(x[i]));
      (targets[i].is_cell ? state : in)[targets[i].index] = variables.back();
    }
    const std::vector<Tensor> y = run_again(*graph, in, {&captures, &state, &rng, n_out});
    std::vector<Tensor> roots, grads;
    for (size_t k = 0; k < grad_outputs.size(); ++k)
      if (g[k].defined() && y[grad_outputs[k]].requires_grad()) {
        roots.push_back(y[grad_outputs[k]]);
        grads.push_back(g[k]);
      }
    if (roots.empty()) return std::vector<Tensor>(x.size());
    return grad(roots, variables,
                {.grad_outputs = grads, .create_graph = true, .allow_unused = true});
  }
};

// A row has few outputs: for a function with more, one node stands for it whose only output is
// empty, and nodes behind it hand the gradients of a few outputs each to `parts`.
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
                              Ref<VjpClosure> closure, Where where) {
  WithVjpAttrs a{std::move(closure), static_cast<int64_t>(x.size())};
  std::vector<Tensor> in(x.begin(), x.end());
  for (const Tensor& t : y) in.push_back(detached_alias(t));
  Tensor results[kMaxOpOuts];
  std::copy(y.begin(), y.end(), results);
  std::vector<uint8_t> present(in.size(), 1);
  std::vector<Scalar> numbers(in.size());
  record_tape(op::with_vjp, &a, in, numbers, present, results, user_line(where), {});
  return std::vector<Tensor>(results, results + y.size());
}

// Put the derivative behind the outputs that have one.
void attach(std::span<const Tensor> x, std::vector<Tensor>& out, Ref<CompiledBackward> closure,
            Where where) {
  const std::vector<size_t> at = closure->grad_outputs;
  std::vector<Tensor> y;
  for (size_t k : at) y.push_back(std::move(out[k]));
  if (y.size() <= static_cast<size_t>(kMaxOpOuts)) {
    y = tape_node(x, y, std::move(closure), where);
  } else {
    Ref<Collected> all = make_ref<Collected>();
    all->whole = std::move(closure);
    all->parts.resize(y.size());
    const std::vector<Tensor> token = tape_node(x, std::vector<Tensor>{zeros({0})}, all, where);
    for (size_t k = 0; k < y.size(); k += kMaxOpOuts) {
      Ref<Part> part = make_ref<Part>();
      part->all = all;
      part->first = k;
      const size_t n = std::min<size_t>(kMaxOpOuts, y.size() - k);
      std::vector<Tensor> some =
          tape_node(token, std::span<const Tensor>(y).subspan(k, n), std::move(part), where);
      std::move(some.begin(), some.end(), y.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (size_t k = 0; k < at.size(); ++k) out[at[k]] = std::move(y[k]);
}

}  // namespace

std::unique_ptr<Specialisation> CompiledCore::State::make(const CallParts& args, const Mode& mode,
                                                          Body body) {
  auto s = std::make_unique<Specialisation>();
  s->mode = mode;
  s->key = args.key;
  std::vector<Spec> specs;
  std::unique_ptr<bool[]> requires_grad(new bool[args.tensors.size() + 1]);
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    Spec spec = spec_of(args.tensors[i]);
    for (const DynamicDim& d : options.dynamic) {
      if (d.argument >= 0 && d.argument != static_cast<int64_t>(i)) continue;
      if (d.argument < 0 && d.dim >= spec.rank()) continue;
      spec.shape[normalize_dim(d.dim, spec.rank())] = Dim::symbol(d.name);
    }
    requires_grad[i] = args.tensors[i].requires_grad();
    s->args.push_back({spec, requires_grad[i]});
    specs.push_back(spec);
  }
  const auto run_body = [&](std::span<const Tensor> in) {
    std::vector<Tensor> out = body(in, s->result_key);
    s->n_out = out.size();
    if (mode.grad) add_derivative(*s, out);
    return out;
  };
  s->graph = trace(run_body, specs, Captures::refuse, {requires_grad.get(), args.tensors.size()});
  ++stats.traces;
  for (const Graph::CellUse& u : s->graph->cells)
    s->cell_requires_grad.push_back(u.cell->requires_grad());
  std::vector<char> read(s->graph->nodes.size());
  for (const Ref<Node>& n : s->graph->nodes)
    for (const NodeInput& i : n->in)
      if (i.from) read[i.from->index] = 1;
  for (const Graph::GradUse& u : s->graph->grads) {
    bool present = u.entry.defined();
    s->grad_present.push_back(present);
    // Present and not read, or absent and only emptied: nothing depends on it.
    s->grad_matters.push_back(present ? read[node_of(u.entry)->index] : u.read);
  }
  return s;
}

Specialisation::Sized& CompiledCore::State::sized(Specialisation& s, const CallParts& args) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < s.args.size(); ++i)
    for (int d = 0; d < s.args[i].spec.rank(); ++d)
      if (s.args[i].spec.shape[d].is_symbolic()) sizes.push_back(args.tensors[i].size(d));
  for (Specialisation::Sized& z : s.sized)
    if (z.sizes == sizes) {
      z.used = ++clock;
      return z;
    }
  Specialisation::Sized z;
  z.sizes = sizes;
  z.used = ++clock;
  Symbols symbols = solve_symbols(*s.graph, args.tensors);
  Program p = compiler::make_program(*s.graph, symbols, options.keep_grads);
  p.weights_stay = !s.graph->guards.empty();
  for (const Graph::Guard& g : s.graph->guards) p.weights_stay = p.weights_stay && !g.value;
  if (s.differentiable()) {
    compiler::ForwardBackward r = compiler::make_pair(std::move(p), s.args.size(), s.n_out,
                                                      options.memory_limit, options.name);
    z.executable = std::move(r.forward);
    z.backward = std::move(r.backward);
    z.saved = std::move(r.saved);
  } else {
    z.executable = compiler::make_executable(std::move(p), options.memory_limit, options.name);
  }
  ++stats.plans;
  s.sized.push_back(std::move(z));
  return s.sized.back();
}

// Keep the cache bounded; warn once when it is used up by ever new shapes.
void CompiledCore::State::forget_oldest() {
  size_t n = 0;
  for (const auto& s : all) n += std::max<size_t>(s->sized.size(), 1);
  if (n <= static_cast<size_t>(options.cache_size)) return;
  if (!warned) {
    warned = true;
    log_warning(
        "{} (compiled at {}:{}) was traced {} times and planned {} times: more than cache_size = "
        "{} are kept.\nName the dimension that changes: compile(fn, {{.dynamic = {{{{0, "
        "\"batch\"}}}}}}), or pad to a few sizes.",
        options.name, where.file ? where.file : "?", where.line, stats.traces, stats.plans,
        options.cache_size);
  }
  Specialisation* owner = nullptr;
  size_t oldest = 0;
  for (auto& s : all)
    for (size_t k = 0; k < s->sized.size(); ++k)
      if (!owner || s->sized[k].used < owner->sized[oldest].used) {
        owner = s.get();
        oldest = k;
      }
  if (!owner) return;
  owner->sized.erase(owner->sized.begin() + static_cast<std::ptrdiff_t>(oldest));
  if (owner->sized.empty()) std::erase_if(all, [owner](const auto& s) { return s.get() == owner; });
}

std::vector<Tensor> CompiledCore::call(const CallParts& args, Body body, std::string& result_key) {
  const Context& c = context();
  // Inside another trace the function becomes part of it; transforms and watches see its ops.
  const bool watched = c.slow & kAnomaly;
  const bool op_by_op_only = watched || (c.slow & kDryRun);
  if ((c.slow & ~(uint32_t{kAutocast | kProfile | kAnomaly} | kDryRun)) || c.redirect ||
      c.cell_log || !c.assign_if.empty() ||
      (op_by_op_only && state_->options.control == Control::eager))
    return body(args.tensors, result_key);
  if (state_->options.control == Control::eager) return call_in_segments(args, body, result_key);
  State& s = *state_;
  Mode mode = present_mode();
  Ref<Executable> run, backward;
  Ref<Graph> graph;
  std::vector<compiler::Saved> saved;
  std::vector<Specialisation::Target> targets;
  std::vector<size_t> grad_outputs;
  size_t n_out = 0;
  bool op_by_op = false;
  {
    std::lock_guard hold(s.lock);
    ++s.stats.calls;
    Specialisation* found = nullptr;
    for (auto& each : s.all)
      if (fits(*each, args, mode) && guards_hold(*each)) {
        found = each.get();
        break;
      }
    if (!found) {
      try {
        s.all.push_back(s.make(args, mode, body));
      } catch (const Error& e) {
        throw with_place(e, nullptr, s.where);
      }
      found = s.all.back().get();
    }
    graph = found->graph;
    result_key = found->result_key;
    op_by_op = watched && found->differentiable();
    if (!watched) {
      Specialisation::Sized& z = s.sized(*found, args);
      run = z.executable;
      n_out = found->n_out;
      if (found->differentiable()) {
        backward = z.backward;
        saved = z.saved;
        targets = found->targets;
        grad_outputs = found->grad_outputs;
      }
      s.last = run;
      s.last_graph = graph;
      s.forget_oldest();
    }
  }
  if (watched) {
    // Op by op: the first that makes a NaN is known, and nothing has been written by then.
    if (op_by_op) return body(args.tensors, result_key);
    const AutocastGuard casts_are_traced(DType::bf16, false);
    return tandem::run(*graph, args.tensors);
  }
  std::vector<Tensor> captures;
  for (const Graph::Capture& k : graph->captures) captures.push_back(k.outer);
  if (!backward) {
    NoGradGuard no_grad;
    return run->run(args.tensors, captures);
  }
  // What the derivative reads of cells is their value before the call.
  std::vector<Tensor> x;
  for (const auto& t : targets)
    x.push_back(t.is_cell ? graph->cells[t.index].cell->read() : args.tensors[t.index]);
  Ref<CompiledBackward> closure = make_ref<CompiledBackward>();
  closure->executable = backward;
  closure->graph = graph;
  closure->targets = targets;
  closure->grad_outputs = grad_outputs;
  closure->rng = generator_state();
  closure->n_out = n_out;
  for (const Tensor& t : args.tensors) closure->args.push_back(detached_alias(t));
  for (const Graph::CellUse& u : graph->cells)
    closure->cells.push_back(u.entry.defined() ? detached_alias(u.cell->read()) : Tensor());
  closure->captures = captures;
  closure->saved.resize(saved.size());
  for (size_t i = 0; i < saved.size(); ++i)
    if (saved[i].kind == compiler::Saved::cell) closure->saved[i] = closure->cells[saved[i].index];
  std::vector<Tensor> out;
  {
    NoGradGuard no_grad;
    out = run->run(args.tensors, captures);
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].kind == compiler::Saved::output) closure->saved[i] = out[saved[i].index];
    if (saved[i].kind == compiler::Saved::input)
      closure->saved[i] = detached_alias(args.tensors[saved[i].index]);
    if (saved[i].kind == compiler::Saved::capture) closure->saved[i] = captures[saved[i].index];
  }
  out.resize(n_out);
  for (size_t k : grad_outputs) closure->specs.push_back(spec_of(out[k]));
  attach(x, out, std::move(closure), s.where);
  return out;
}

std::vector<Tensor> CompiledCore::call_in_segments(const CallParts& args, Body body,
                                                   std::string& result_key) {
  State& s = *state_;
  const GeneratorState entry = generator_state();
  const auto begin = std::chrono::steady_clock::now();
  const int64_t cold = s.segments->cold();
  compiler::SegmentedRun run(*s.segments);
  std::vector<Tensor> out;
  try {
    out = body(args.tensors, result_key);
    run.commit();
  } catch (...) {
    set_generator_state(entry);
    throw;
  }
  const double all =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  s.segments->took(all, run.op_by_op(), cold == s.segments->cold());
  std::lock_guard hold(s.lock);
  ++s.stats.calls;
  if (run.reads() == 0 || s.warned) return out;
  s.warned = true;
  const Where at = run.first_read();
  log_warning(
      "{} (compiled at {}:{}) reads a value{}: it runs in {} segments here, and its C++ runs at "
      "every call ({:.0f} us of this one).\nwhere(), cond(), while_loop() and scan() stay in one "
      "program.",
      s.options.name, s.where.file ? s.where.file : "?", s.where.line,
      at.is_user() ? fmt::format(" at {}:{}", at.file, at.line) : std::string(), run.segments(),
      (all - run.seconds_inside()) * 1e6);
  return out;
}

Tensor number_slot(double v) { return full({}, v, DType::f64); }

CompileStats CompiledCore::stats() const {
  std::lock_guard hold(state_->lock);
  CompileStats stats = state_->stats;
  stats.plans += state_->segments->compiled();
  stats.segments = state_->segments->run();
  return stats;
}
Ref<Executable> CompiledCore::executable() const {
  std::lock_guard hold(state_->lock);
  return state_->last ? state_->last : state_->segments->last();
}
Ref<Graph> CompiledCore::graph() const {
  std::lock_guard hold(state_->lock);
  return state_->last_graph;
}
void CompiledCore::clear() {
  std::lock_guard hold(state_->lock);
  state_->all.clear();
  state_->segments->clear();
  state_->last = {};
  state_->last_graph = {};
}

}  // namespace tandem::detail
