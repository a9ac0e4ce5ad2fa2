// SPDX-License-Identifier: Apache-2.0
// run(Graph): walks the nodes through the dispatcher. The oracle for every other way to execute a
// graph, and how vmap, checkpoint and data-sized segments run. Cells are written only at the end,
// so an exception leaves them unchanged.
#include <algorithm>

#include "tandem/graph/apply.h"
#include "tandem/graph/run/run_internal.h"
#include "tandem/graph/run/started_work.h"
#include "tandem/graph/run/visit.h"

namespace tandem {
namespace {

// Replaces the symbols in the lists of an attrs struct by numbers.
class PutNumbers : public AttrVisitor {
 public:
  explicit PutNumbers(const Symbols& symbols) : symbols_(symbols) {}
  void operator()(const char*, int64_t&) override {}
  void operator()(const char*, double&) override {}
  void operator()(const char*, bool&) override {}
  void operator()(const char*, DType&) override {}
  void operator()(const char*, std::string&) override {}
  void operator()(const char*, Scalar&) override {}
  void operator()(const char*, std::vector<int64_t>&) override {}
  void operator()(const char*, Ref<RefCounted>&) override {}
  void operator()(const char*, IntList& v) override {
    for (Dim& d : v)
      if (d.is_symbolic()) d = d.evaluate(symbols_);
  }

 private:
  const Symbols& symbols_;
};

}  // namespace

AttrsHolder put_numbers(const AttrsHolder& attrs, const Symbols& symbols) {
  AttrsHolder copy = attrs;
  if (!copy.get() || symbols.empty()) return copy;
  PutNumbers put(symbols);
  copy.type()->visit(const_cast<void*>(copy.get()), put);
  return copy;
}

namespace {

class Runner {
 public:
  Runner(const Graph& g, const Symbols& symbols, NodeVisitor* visitor = nullptr)
      : g_(g),
        symbols_(symbols),
        visitor_(visitor),
        env_(g.nodes.size()),
        last_use_(g.nodes.size(), 0) {
    for (const Ref<Node>& n : g.nodes)
      for (const NodeInput& i : n->in)
        if (i.from) last_use_[i.from->index] = n->index;
    for (const Tensor& t : g.outputs) keep(t);
    for (const Graph::CellUse& u : g.cells) keep(u.exit);
    for (const Graph::GradUse& u : g.grads) keep(u.exit);
  }

  void set(const Tensor& placeholder, const Tensor& value) {
    auto& slot = env_[node_of(placeholder)->index];
    slot.resize(1);
    slot[0] = value;
  }
  Tensor get(const Tensor& t) const { return env_[node_of(t)->index][t.impl()->out_index]; }

  void walk(GeneratorState entry) {
    StartedScope started;
    for (const Ref<Node>& n : g_.nodes)
      if (env_[n->index].empty()) step(*n, entry);
    started.end();
  }
  // Only what the first outputs need; ops with an effect pass their operand on.
  void walk_again(GeneratorState entry, size_t outputs) {
    std::vector<char> needed(g_.nodes.size());
    for (size_t i = 0; i < std::min(outputs, g_.outputs.size()); ++i)
      needed[node_of(g_.outputs[i])->index] = 1;
    for (size_t k = g_.nodes.size(); k-- > 0;)
      for (const NodeInput& i : g_.nodes[k]->in)
        if (needed[k] && i.from) needed[i.from->index] = 1;
    for (const Ref<Node>& n : g_.nodes) {
      if (!needed[n->index] || !env_[n->index].empty()) continue;
      if (n->op->has(kEffect) && n->out.size() == 1)
        env_[n->index].push_back(take(n->in[0], n->index));
      else
        step(*n, entry);
    }
  }

 private:
  void keep(const Tensor& t) {
    if (t.defined()) last_use_[node_of(t)->index] = UINT32_MAX;
  }

  void step(const Node& n, GeneratorState entry) {
    SmallVec<Tensor, 4> given;
    for (const NodeInput& i : n.in) given.push_back(i.present ? take(i, n.index) : Tensor());
    ScopeGuard scope(n.scope, n.loc);
    NoGradGuard no_grad(!context().grad_enabled || (n.flags & kNoGrad));
    Tensor out[kMaxOpOuts];
    AttrsHolder numbers;
    if (n.attrs.get() && !symbols_.empty()) numbers = put_numbers(n.attrs, symbols_);
    const void* attrs = numbers.get() ? numbers.get() : n.attrs.get();
    if (visitor_) visitor_->set_attrs(attrs);
    if (!visitor_ || !visitor_->before(n, {given.data(), given.size()}, out))
      call(n, attrs, {given.data(), given.size()}, entry, out);
    if (visitor_) visitor_->after(n, out);
    auto& slot = env_[n.index];
    for (size_t o = 0; o < n.out.size(); ++o) slot.push_back(std::move(out[o]));
    if (slot.empty()) slot.resize(1);
  }

  void call(const Node& n, const void* attrs, std::span<Tensor> given, GeneratorState entry,
            Tensor* out) const {
    std::vector<Operand> in;
    in.reserve(n.in.size());
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (n.in[i].is_scalar)
        in.emplace_back(n.in[i].scalar, n.loc);
      else
        in.emplace_back(std::move(given[i]), n.loc);
    }
    RngKey key{entry.seed, static_cast<uint32_t>(entry.offset + n.rng.offset)};
    ApplyOptions options;
    if (!is_tracing()) options.rng = &key;
    options.hidden = n.out.size() > static_cast<size_t>(n.op->shown());
    apply(*n.op, attrs, in, out, n.loc, options);
  }

  Tensor take(const NodeInput& i, uint32_t at) {
    Tensor& t = env_[i.from->index][i.from_index];
    // The last reader may reuse the buffer, unless it reads the value twice.
    if (last_use_[i.from->index] != at || reads(at, *i.from) > 1) return t;
    return std::move(t);
  }
  int reads(uint32_t at, const Node& from) const {
    int n = 0;
    for (const NodeInput& i : g_.nodes[at]->in) n += i.from.get() == &from;
    return n;
  }

  const Graph& g_;
  const Symbols& symbols_;
  NodeVisitor* visitor_;
  std::vector<SmallVec<Tensor, 1>> env_;
  std::vector<uint32_t> last_use_;
};

}  // namespace

void check_inputs(const Graph& g, std::span<const Tensor> inputs) {
  TD_CHECK(inputs.size() == g.inputs.size(), Value, "the graph takes {} inputs, got {}",
           g.inputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& want = g.inputs[i];
    TD_CHECK(
        inputs[i].defined() && inputs[i].dtype() == want.dtype() && inputs[i].dim() == want.dim(),
        Shape, "input {} of the graph is {} {}, got {} {}", i, to_string(want.dtype()),
        want.shape().to_string(), inputs[i].defined() ? to_string(inputs[i].dtype()) : "none",
        inputs[i].defined() ? inputs[i].shape().to_string() : "");
    for (int d = 0; d < want.dim(); ++d)
      TD_CHECK(want.shape()[d].is_symbolic() || inputs[i].shape()[d] == want.shape()[d], Shape,
               "input {} of the graph is {}, got {}", i, want.shape().to_string(),
               inputs[i].shape().to_string());
  }
}

Symbols solve_symbols(const Graph& g, std::span<const Tensor> inputs) {
  Symbols symbols;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int d = 0; d < inputs[i].dim(); ++d)
      if (g.inputs[i].shape()[d].is_symbolic()) {
        if (inputs[i].shape()[d].is_symbolic()) return {};  // run inside the trace of these symbols
        symbols.emplace_back(g.inputs[i].shape()[d], inputs[i].size(d));
      }
  for (auto [a, b] : g.checks.equal)
    TD_CHECK(a.evaluate(symbols) == b.evaluate(symbols), Shape,
             "the graph needs {} = {}, here they are {} and {}", a.to_string(), b.to_string(),
             a.evaluate(symbols), b.evaluate(symbols));
  return symbols;
}

namespace {
std::vector<Tensor> run_visited(const Graph& g, std::span<const Tensor> inputs,
                                const std::vector<Tensor>* captures, NodeVisitor* visitor) {
  check_inputs(g, inputs);
  Symbols symbols = solve_symbols(g, inputs);
  // A whole step contains its own backward pass: its nodes need no second tape.
  NoGradGuard no_grad(!context().grad_enabled || !g.cells.empty() || !g.grads.empty());
  Runner r(g, symbols, visitor);
  for (size_t i = 0; i < inputs.size(); ++i) r.set(g.inputs[i], inputs[i]);
  for (size_t i = 0; i < g.captures.size(); ++i)
    r.set(g.captures[i].inner, captures ? (*captures)[i] : g.captures[i].outer);
  for (const Graph::CellUse& u : g.cells)
    if (u.entry.defined()) r.set(u.entry, u.cell->read());
  for (const Graph::GradUse& u : g.grads) {
    if (!u.entry.defined()) continue;
    TD_CHECK(u.slot->grad.defined(), Value,
             "the graph was traced with a gradient present, now there is none\nTrace it again.");
    r.set(u.entry, u.slot->grad);
  }
  GeneratorState entry = generator_state();
  r.walk(entry);
  if (!is_tracing() && g.rng_draws) set_generator_state({entry.seed, entry.offset + g.rng_draws});
  std::vector<Tensor> out;
  for (const Tensor& t : g.outputs) out.push_back(r.get(t));
  for (const Graph::CellUse& u : g.cells)
    if (u.exit.defined()) u.cell->assign(r.get(u.exit), SourceLocation{});
  for (const Graph::GradUse& u : g.grads) {
    if (!u.stored) continue;
    std::lock_guard hold(u.slot->lock);
    u.slot->set(u.exit.defined() ? r.get(u.exit) : Tensor());
  }
  return out;
}

}  // namespace

std::vector<Tensor> run(const Graph& g, std::span<const Tensor> inputs,
                        const std::vector<Tensor>* captures) {
  return run_visited(g, inputs, captures, nullptr);
}
std::vector<Tensor> run(const Graph& g, std::span<const Tensor> inputs, NodeVisitor& visitor) {
  return run_visited(g, inputs, nullptr, &visitor);
}

std::vector<Tensor> run_again(const Graph& g, std::span<const Tensor> inputs,
                              const SeenBefore& seen) {
  Symbols symbols = solve_symbols(g, inputs);
  Runner r(g, symbols);
  for (size_t i = 0; i < inputs.size(); ++i) r.set(g.inputs[i], inputs[i]);
  for (size_t i = 0; i < g.captures.size(); ++i)
    r.set(g.captures[i].inner, seen.captures ? (*seen.captures)[i] : g.captures[i].outer);
  for (size_t i = 0; i < g.cells.size(); ++i)
    if (g.cells[i].entry.defined())
      r.set(g.cells[i].entry, seen.cells ? (*seen.cells)[i] : g.cells[i].cell->read());
  r.walk_again(seen.generator ? *seen.generator : generator_state(), seen.outputs);
  std::vector<Tensor> out;
  for (size_t i = 0; i < std::min(seen.outputs, g.outputs.size()); ++i)
    out.push_back(r.get(g.outputs[i]));
  return out;
}

}  // namespace tandem
