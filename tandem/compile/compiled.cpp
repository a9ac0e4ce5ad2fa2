// SPDX-License-Identifier: Apache-2.0
// The cache of a compiled function: finds the specialisation that fits a call, or makes it: trace,
// passes, lowering. Inside another trace, under transforms and in anomaly mode fn runs as it is.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/compile/compile.h"
#include "tandem/compile/executable.h"
#include "tandem/compile/passes.h"

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
    uint64_t used = 0;
  };
  std::vector<Sized> sized;
  std::vector<char> cell_requires_grad, grad_present, grad_matters;
  bool walk = false;  ///< data-sized: no plan, the nodes are walked
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
  return true;
}

bool is_data_sized(const Graph& g) {
  for (const Ref<Node>& n : g.nodes)
    if (n->op->has(kDataSized)) return true;
  return false;
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

  std::unique_ptr<Specialisation> make(const CallParts& args, const Mode& mode, Body body);
  Specialisation::Sized& sized(Specialisation& s, const CallParts& args);
  void forget_oldest();
};

CompiledCore::CompiledCore(CompileOptions options, Where where)
    : state_(std::make_unique<State>()) {
  TD_CHECK(options.cache_size > 0, Value, "compile: cache_size must be positive, got {}",
           options.cache_size);
  state_->options = std::move(options);
  state_->where = where;
}
CompiledCore::~CompiledCore() = default;

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
  const auto run_body = [&](std::span<const Tensor> in) { return body(in, s->result_key); };
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
  s->walk = is_data_sized(*s->graph);
  return s;
}

Specialisation::Sized& CompiledCore::State::sized(Specialisation& s, const CallParts& args) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < s.args.size(); ++i)
    for (int d = 0; d < s.args[i].spec.rank(); ++d)
      if (s.args[i].spec.shape[d].is_symbolic()) sizes.push_back(args.tensors[i].size(d));
  for (Specialisation::Sized& z : s.sized)
    if (z.sizes == sizes && (s.walk || z.executable->matches())) {
      z.used = ++clock;
      return z;
    }
  Specialisation::Sized z;
  z.sizes = sizes;
  z.used = ++clock;
  if (!s.walk) {
    Program p = compiler::make_program(*s.graph, solve_symbols(*s.graph, args.tensors),
                                       options.keep_grads);
    compiler::run_passes(p);
    z.executable = make_ref<Executable>(std::move(p));
    ++stats.plans;
  }
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
  if (owner->sized.empty())
    std::erase_if(all, [owner](const auto& s) { return s.get() == owner; });
}

std::vector<Tensor> CompiledCore::call(const CallParts& args, Body body, std::string& result_key) {
  const Context& c = context();
  // Inside another trace the function becomes part of it; transforms and watches see its ops.
  if ((c.slow & ~uint32_t{kAutocast}) || c.redirect || c.cell_log || !c.assign_if.empty())
    return body(args.tensors, result_key);
  State& s = *state_;
  Mode mode = present_mode();
  Ref<Executable> run;
  Ref<Graph> graph;
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
    Specialisation::Sized& z = s.sized(*found, args);
    run = z.executable;
    graph = found->graph;
    result_key = found->result_key;
    s.last = run;
    s.last_graph = graph;
    s.forget_oldest();
  }
  NoGradGuard no_grad;
  if (!run) return tandem::run(*graph, args.tensors);
  std::vector<Tensor> captures;
  for (const Graph::Capture& k : graph->captures) captures.push_back(k.outer);
  return run->run(args.tensors, captures);
}

CompileStats CompiledCore::stats() const {
  std::lock_guard hold(state_->lock);
  return state_->stats;
}
Ref<Executable> CompiledCore::executable() const {
  std::lock_guard hold(state_->lock);
  return state_->last;
}
Ref<Graph> CompiledCore::graph() const {
  std::lock_guard hold(state_->lock);
  return state_->last_graph;
}
void CompiledCore::clear() {
  std::lock_guard hold(state_->lock);
  state_->all.clear();
  state_->last = {};
  state_->last_graph = {};
}

}  // namespace tandem::detail
