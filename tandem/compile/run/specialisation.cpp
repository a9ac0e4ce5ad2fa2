// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/specialisation.h"

#include "tandem/base/parallel.h"
#include "tandem/compile/run/executable.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/apply_internal.h"

namespace tandem::detail {

Mode present_mode() {
  const Context& c = context();
  uint32_t slow = c.slow & kAutocast;
  return {c.grad_enabled, slow,     slow ? c.autocast_dtype : DType::f32,
          num_threads(),  c.device, float32_matmul_precision()};
}

bool Specialisation::fits(const CallParts& given, const Mode& now) const {
  if (!(mode == now) || args.size() != given.tensors.size() || key != given.key) return false;
  for (size_t i = 0; i < args.size(); ++i) {
    const Tensor& t = given.tensors[i];
    const Spec& want = args[i].spec;
    if (t.dtype() != want.dtype || t.dim() != want.rank() || !(t.device() == want.device) ||
        t.requires_grad() != args[i].requires_grad)
      return false;
    for (int d = 0; d < want.rank(); ++d)
      if (!want.shape[d].is_symbolic() && !(want.shape[d] == t.shape()[d])) return false;
  }
  return true;
}

bool Specialisation::guards_hold() const {
  for (const Graph::Guard& g : graph->guards)
    if (*g.flag != g.value) return false;
  for (size_t i = 0; i < graph->cells.size(); ++i)
    if (graph->cells[i].cell->requires_grad() != static_cast<bool>(cell_requires_grad[i]))
      return false;
  for (size_t i = 0; i < graph->grads.size(); ++i) {
    if (!grad_matters[i]) continue;
    GradSlot& slot = *graph->grads[i].slot;
    std::lock_guard hold(slot.lock);
    slot.get();  // throws when a compiled step has consumed it
    if (slot.grad.defined() != static_cast<bool>(grad_present[i])) return false;
  }
  return Executable::cells_fit(*graph);
}

std::vector<int64_t> Specialisation::sizes_of(const CallParts& given) const {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < args.size(); ++i)
    for (int d = 0; d < args[i].spec.rank(); ++d)
      if (args[i].spec.shape[d].is_symbolic()) sizes.push_back(given.tensors[i].size(d));
  return sizes;
}

namespace {

// Record the derivative after the function: gradients of the outputs become further inputs, those
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
  // Two programs, one of which ends before the other begins: values stay in the cells for both.
  if (!t.graph->sources.empty()) {
    s.needs_cells = true;
    return s.grad_outputs.clear();
  }
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
  std::vector<GradTarget> used;
  for (size_t i = 0; i < g.size(); ++i)
    if (g[i].defined()) {
      used.push_back(s.targets[i]);
      outputs.push_back(std::move(g[i]));
    }
  s.targets = std::move(used);
}

// What of cells and gradients the trace has seen, for guards_hold().
void note_state(Specialisation& s) {
  for (const Graph::CellUse& u : s.graph->cells)
    s.cell_requires_grad.push_back(u.cell->requires_grad());
  std::vector<char> read(s.graph->nodes.size());
  for (const Ref<Node>& n : s.graph->nodes)
    for (const NodeInput& i : n->in)
      if (i.from) read[i.from->index] = 1;
  for (const Graph::GradUse& u : s.graph->grads) {
    bool present = u.entry.defined();
    s.grad_present.push_back(present);
    // Present and not read, or absent and only emptied: nothing depends on it.
    s.grad_matters.push_back(present ? read[node_of(u.entry)->index] : u.read);
  }
}

}  // namespace

std::unique_ptr<Specialisation> trace_specialisation(const CallParts& args, const Mode& mode,
                                                     const CompileOptions& options,
                                                     CompiledCore::Body body) {
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
  const std::span<const bool> wanted{requires_grad.get(), args.tensors.size()};
  s->graph = trace(run_body, specs, Captures::refuse, wanted);
  if (s->needs_cells) s->graph = trace(run_body, specs, Captures::refuse, wanted, false);
  note_state(*s);
  return s;
}

Specialisation::Sized plan_sizes(const Specialisation& s, const CallParts& args,
                                 const CompileOptions& options) {
  Specialisation::Sized z;
  z.sizes = s.sizes_of(args);
  const Symbols symbols = solve_symbols(*s.graph, args.tensors);
  compiler::Program p = compiler::make_program(*s.graph, symbols, options.keep_grads);
  p.same_bits = options.same_bits;
  p.weights_stay = !s.graph->guards.empty();
  for (const Graph::Guard& g : s.graph->guards) p.weights_stay = p.weights_stay && !g.value;
  if (!s.differentiable()) {
    z.executable = compiler::make_executable(std::move(p), options.memory_limit, options.name);
    return z;
  }
  compiler::ForwardBackward r =
      compiler::make_pair(std::move(p), s.args.size(), s.n_out, options.memory_limit, options.name);
  z.executable = std::move(r.forward);
  z.backward = std::move(r.backward);
  z.saved = std::move(r.saved);
  return z;
}

}  // namespace tandem::detail
