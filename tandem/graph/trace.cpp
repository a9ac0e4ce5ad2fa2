// SPDX-License-Identifier: Apache-2.0
// Recording a function as a Graph: placeholders for captured values, cells and gradient slots as
// SSA variables, and the transaction around it.
#include "tandem/graph/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/graph/apply_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/waiting_updates.h"

namespace tandem {
namespace {

// Makes `t` the running trace; undoes everything on exit.
class TraceGuard {
 public:
  explicit TraceGuard(Trace& t) : old_slow_(context().slow), old_checks_(current_dim_checks()) {
    context().trace = &t;
    context().slow |= kTracing;
    current_dim_checks() = &t.graph->checks;
  }
  ~TraceGuard() {
    Context& c = context();
    c.trace = c.trace->parent;
    c.slow = (c.slow & ~uint32_t{kTracing}) | (old_slow_ & kTracing);
    current_dim_checks() = old_checks_;
  }
  TraceGuard(const TraceGuard&) = delete;
  TraceGuard& operator=(const TraceGuard&) = delete;

 private:
  uint32_t old_slow_;
  DimChecks* old_checks_;
};

bool belongs(const Tensor& t, const Graph* g) {
  const Node* n = node_of(t);
  return t.is_symbolic() && n && n->graph == g;
}

// For messages: where the value was created.
std::string origin(const Tensor& t) {
  const Node* n = node_of(t);
  if (!n || !n->loc.file) return "outside";
  return fmt::format("at {}:{}", n->loc.file, n->loc.line);
}

std::string print_node(const Node& n) {
  std::string s;
  for (size_t o = 0; o < std::max<size_t>(n.out.size(), 1); ++o)
    s += fmt::format("{}%{}{}", o ? ", " : "", n.index, o ? fmt::format(".{}", o) : "");
  s += fmt::format(" = {}(", n.op->name);
  for (size_t i = 0; i < n.in.size(); ++i) {
    const NodeInput& in = n.in[i];
    if (i) s += ", ";
    if (in.is_scalar)
      s += in.scalar.kind == 2 ? fmt::format("{}", in.scalar.f) : fmt::format("{}", in.scalar.i);
    else if (!in.present)
      s += "-";
    else
      s += fmt::format("%{}{}", in.from->index,
                       in.from_index ? fmt::format(".{}", in.from_index) : "");
  }
  s += ")";
  if (n.attrs.get()) s += fmt::format(" {{{}}}", print_attrs(n.attrs.type(), n.attrs.get()));
  for (size_t o = 0; o < n.out.size(); ++o)
    s += fmt::format("{} {}", o ? "," : " :", Spec(n.out[o].dtype, n.out[o].shape).to_string());
  return s;
}

}  // namespace

Graph::~Graph() {
  // Values and nodes of one graph only point forwards to each other; drop them from the end.
  outputs.clear();
  while (!nodes.empty()) nodes.pop_back();
}

std::string Graph::to_string() const {
  std::string s;
  for (const Ref<Node>& n : nodes) s += print_node(*n) + "\n";
  s += "return";
  for (const Tensor& t : outputs) {
    const Node* n = node_of(t);
    s += fmt::format(" %{}{}", n->index,
                     t.impl()->out_index ? fmt::format(".{}", t.impl()->out_index) : "");
  }
  return s + "\n";
}
std::string to_string(const Graph& g) { return g.to_string(); }

Trace* cell_trace() {
  for (Trace* t = context().trace; t; t = t->parent)
    if (t->policy == Captures::refuse) return t;
  return nullptr;
}

Tensor Trace::placeholder(const OpDef& row, const Spec& spec, bool requires_grad) {
  Ref<Node> n = Node::make();
  n->op = &row;
  n->flags = kTraced;
  n->graph = graph.get();
  n->index = static_cast<uint32_t>(graph->nodes.size());
  NodeOutput& y = n->out.emplace_back();
  y.dtype = spec.dtype;
  y.device = spec.device;
  y.shape = spec.shape;
  Tensor t(
      Ref<detail::TensorImpl>::adopt(detail::new_symbolic(spec.shape, spec.dtype, spec.device)));
  set_node(t, n, 0);
  if (requires_grad) t.impl()->flags |= detail::kRequiresGrad;
  graph->nodes.push_back(std::move(n));
  return t;
}

bool values_hidden() { return is_tracing() && !context().trace->lazy; }

Tensor Trace::bring_in(const Tensor& t, SourceLocation loc) {
  if (lazy) return t;
  if (belongs(t, graph.get())) return t;
  if (auto at = captured.find(t.impl()); at != captured.end())
    return graph->captures[at->second].inner;
  Tensor outer = t;
  if (t.is_symbolic()) {
    bool live = false;
    for (Trace* p = parent; p; p = p->parent)
      live |= p->lazy ? p->lazy->owns(*t.impl()) : belongs(t, p->graph.get());
    TD_CHECK(live, Unsupported,
             "a value made {} in a trace that has ended is used here\n"
             "Return it from the traced function, or keep it in a Buffer.",
             origin(t));
  } else {
    TD_CHECK(policy == Captures::as_inputs, Unsupported,
             "a tensor {} of dtype {} from outside is used in a traced step\nPass it as an "
             "argument, hold it in a Buffer, or write constant(x).",
             t.shape().to_string(), to_string(t.dtype()));
  }
  (void)loc;
  Tensor inner = placeholder(op::capture, spec_of(t), t.requires_grad());
  captured.emplace(outer.impl(), graph->captures.size());
  graph->captures.push_back({outer, inner});
  return inner;
}

Graph::CellUse& Trace::use_of(Cell& cell) {
  auto [at, fresh] = cell_index.emplace(&cell, graph->cells.size());
  if (fresh) graph->cells.push_back({Ref<Cell>::share(&cell), {}, {}});
  return graph->cells[at->second];
}

Graph::GradUse& Trace::use_of(GradSlot& slot) {
  auto [at, fresh] = grad_index.emplace(&slot, graph->grads.size());
  if (fresh) {
    Graph::GradUse u{Ref<GradSlot>::share(&slot), {}, {}};
    if (lazy)
      u.entry = slot.grad;
    else if (slot.grad.defined())
      u.entry = placeholder(op::grad_read, spec_of(slot.grad), false);
    graph->grads.push_back(std::move(u));
  }
  return graph->grads[at->second];
}

Tensor Trace::read_cell(const Cell& cell) {
  if (WaitingUpdates* w = waiting_updates()) w->need(cell);
  Graph::CellUse& u = use_of(const_cast<Cell&>(cell));
  if (u.exit.defined()) return u.exit;
  if (lazy) return cell.present();
  if (!u.entry.defined()) {
    if (const Tensor v = bring_by_rows(cell); v.defined()) {
      set_exit(const_cast<Cell&>(cell), v, true, SourceLocation{});
      return use_of(const_cast<Cell&>(cell)).exit;
    }
    u.entry = placeholder(op::cell_read, spec_of(cell.value_), cell.requires_grad_);
    node_of(u.entry)->slot = cell.slot_;
  }
  return u.entry;
}

// Rows of this trace, whatever is being traced inside it, under whatever modes.
Tensor Trace::bring_by_rows(const Cell& cell) {
  if (!brings || detail::shard_role(cell) != detail::ShardRole::whole) return {};
  const NoGradGuard no_grad;
  const AutocastGuard as_it_is(DType::bf16, false);
  Trace* const inner = std::exchange(context().trace, this);
  const auto checks = std::exchange(current_dim_checks(), &graph->checks);
  const auto back = [&] {
    context().trace = inner;
    current_dim_checks() = checks;
  };
  try {
    Tensor v = detail::bring_by_rows(cell, *this);
    back();
    return v;
  } catch (...) {
    back();
    throw;
  }
}

void Trace::forget_brought(const Cell& cell) {
  const auto at = cell_index.find(&cell);
  if (at == cell_index.end() || !graph->cells[at->second].brought) return;
  graph->cells[at->second].exit = Tensor();
}

void Trace::assign_cell(Cell& cell, const Tensor& v, SourceLocation loc) {
  if (WaitingUpdates* w = waiting_updates()) w->need(cell);
  set_exit(cell, v, false, loc);
}

void Trace::set_exit(Cell& cell, const Tensor& v, bool brought, SourceLocation loc) {
  // A fresh identity, so that later reads are a leaf with the same gradient slot.
  Tensor t;
  if (lazy) {
    t = detached_alias(v);
    if (cell.requires_grad_) set_node(t, cell.leaf_, 0);
  } else {
    NoGradGuard no_grad;
    Trace* const inner = std::exchange(context().trace, this);
    t = call(op::identity, nullptr, loc, v);
    context().trace = inner;
    if (cell.requires_grad_) node_of(t)->slot = cell.slot_;
  }
  if (cell.requires_grad_) t.impl()->flags |= detail::kRequiresGrad;
  Graph::CellUse& u = use_of(cell);
  u.exit = t;
  u.brought = brought;
}

Tensor Trace::read_grad(GradSlot& slot) {
  Graph::GradUse& u = use_of(slot);
  if (!u.stored) u.read = true;
  if (lazy && !u.stored) return slot.get();  // throws when a compiled step has consumed it
  return u.stored ? u.exit : u.entry;
}

void Trace::store_grad(GradSlot& slot, const Tensor& g) {
  Graph::GradUse& u = use_of(slot);
  u.exit = g;
  u.stored = true;
  u.consumed = false;
}

void Trace::consume_grad(GradSlot& slot) {
  if (!lazy) use_of(slot).consumed = true;
}

void Trace::guard(RefCounted& owner, const bool& flag) {
  if (lazy) return;
  for (const Graph::Guard& g : graph->guards)
    if (g.flag == &flag) return;
  graph->guards.push_back({Ref<RefCounted>::share(&owner), &flag, flag});
}

Ref<Graph> trace(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                 std::span<const Spec> inputs, Captures captures,
                 std::span<const bool> requires_grad, bool brings) {
  Trace t{make_ref<Graph>(), captures, context().trace, 0, {}, {}, {}, nullptr, {}, brings};
  TraceGuard guard(t);
  for (size_t i = 0; i < inputs.size(); ++i)
    t.graph->inputs.push_back(
        t.placeholder(op::input, inputs[i], !requires_grad.empty() && requires_grad[i]));
  std::vector<Tensor> outputs = f(t.graph->inputs);
  for (Tensor& y : outputs) {
    TD_CHECK(y.defined(), Value, "the traced function returned an undefined tensor");
    t.graph->outputs.push_back(t.bring_in(y, SourceLocation{}));
  }
  for (Graph::CellUse& u : t.graph->cells) {
    if (std::exchange(u.brought, false)) u.exit = Tensor();
    if (u.exit.defined()) u.exit = t.bring_in(u.exit, SourceLocation{});
  }
  for (Graph::GradUse& u : t.graph->grads)
    if (u.exit.defined()) u.exit = t.bring_in(u.exit, SourceLocation{});
  return t.graph;
}

}  // namespace tandem
