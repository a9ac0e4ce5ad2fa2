// SPDX-License-Identifier: Apache-2.0
// The backward walk. Nodes that a gradient can reach are collected without recursion, ordered by
// depth (above the targets, where there are some), and each receives the sum of the gradients of
// its outputs before its own rule runs. A node's saved values are freed as soon as they have been
// used.
#include "tandem/grad/engine_internal.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tandem/grad/grad_watch_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/expression/derivative.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/trace.h"
#include "tandem/graph/vjp.h"
#include "tandem/ops/control.h"

namespace tandem {
namespace {

std::atomic<uint64_t> g_walks{1};

// The reachable nodes in walking order, with the gradients that have arrived.
class Walk {
 public:
  struct Item {
    Ref<Node> node;
    SmallVec<Tensor, 1> grads;
    uint32_t found = 0;  ///< its place in the order in which the walk found the nodes
  };

  explicit Walk(uint64_t id) : id_(id) {}
  ~Walk() {
    for (Item& i : items_)
      if (i.node->owner.load(std::memory_order_relaxed) == id_)
        i.node->owner.store(0, std::memory_order_release);
  }

  void collect(std::span<const Tensor> roots) {
    std::vector<Node*> stack;
    for (const Tensor& r : roots)
      if (Node* n = node_of(r); n && r.requires_grad() && claim(n)) stack.push_back(n);
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      for (const NodeInput& i : n->in)
        if (i.needs_grad && i.from && claim(i.from.get())) stack.push_back(i.from.get());
    }
    order();
  }

  Item* find(const Node* n) {
    if (n->owner.load(std::memory_order_relaxed) == id_) return &items_[n->mark];
    auto at = shared_.find(n);
    return at == shared_.end() ? nullptr : &items_[at->second];
  }

  std::vector<Item>& items() { return items_; }

  /// Mark the nodes above a target: only they need to run. `wanted` tells which nodes are targets.
  template <class Wanted>
  std::vector<bool> above(const Wanted& wanted) {
    std::vector<bool> needed(items_.size());
    for (size_t k = items_.size(); k-- > 0;) {
      bool on = wanted.count(items_[k].node.get()) > 0;
      for (const NodeInput& i : items_[k].node->in)
        if (!on && i.needs_grad && i.from)
          if (Item* below = find(i.from.get()))
            on = needed[static_cast<size_t>(below - &items_[0])];
      needed[k] = on;
    }
    return needed;
  }

  /// Order the needed nodes by their depth above the targets. What lies below those must not count:
  /// a trace connects the variables of an inner derivative to it, the tape often does not.
  void order_above(std::vector<bool>& needed) {
    std::vector<uint32_t> depth(items_.size()), from(items_.size());
    for (size_t k = items_.size(); k-- > 0;) {
      from[k] = static_cast<uint32_t>(k);
      if (!needed[k]) continue;
      for (const NodeInput& i : items_[k].node->in) {
        const Item* below = i.needs_grad && i.from ? find(i.from.get()) : nullptr;
        const size_t b = below ? static_cast<size_t>(below - items_.data()) : k;
        if (b != k && needed[b]) depth[k] = std::max(depth[k], depth[b] + 1);
      }
    }
    std::sort(from.begin(), from.end(), [&](uint32_t a, uint32_t b) {
      if (depth[a] != depth[b]) return depth[a] > depth[b];
      return items_[a].found < items_[b].found;
    });
    std::vector<Item> items;
    std::vector<bool> now;
    for (uint32_t k : from) {
      items.push_back(std::move(items_[k]));
      now.push_back(needed[k]);
    }
    items_ = std::move(items);
    needed = std::move(now);
    mark();
  }

 private:
  // Claims an unvisited node. Nodes that another thread's walk holds are kept in a map.
  bool claim(Node* n) {
    uint64_t none = 0;
    if (n->owner.compare_exchange_strong(none, id_, std::memory_order_acquire)) {
      n->mark = static_cast<uint32_t>(items_.size());
      items_.push_back({Ref<Node>::share(n), {}, static_cast<uint32_t>(items_.size())});
      return true;
    }
    if (none == id_ || shared_.count(n)) return false;
    shared_.emplace(n, static_cast<uint32_t>(items_.size()));
    items_.push_back({Ref<Node>::share(n), {}, static_cast<uint32_t>(items_.size())});
    return true;
  }

  void order() {
    auto deeper = [](const Item& a, const Item& b) { return a.node->depth > b.node->depth; };
    if (std::is_sorted(items_.begin(), items_.end(), deeper)) return;
    std::stable_sort(items_.begin(), items_.end(), deeper);
    mark();
  }

  void mark() {
    for (uint32_t i = 0; i < items_.size(); ++i) {
      Node* n = items_[i].node.get();
      if (n->owner.load(std::memory_order_relaxed) == id_)
        n->mark = i;
      else
        shared_[n] = i;
    }
  }

  uint64_t id_;
  std::vector<Item> items_;
  std::unordered_map<const Node*, uint32_t> shared_;
};

void add_into(Tensor& slot, Tensor g, SourceLocation loc) {
  if (!slot.defined())
    slot = std::move(g);
  else
    slot = call(op::add, nullptr, loc, std::move(slot), std::move(g));
}

/// The leaves of some slots, asked as a map of nodes is.
struct SlotsOf {
  std::unordered_set<const GradSlot*> slots;
  explicit SlotsOf(std::span<GradSlot* const> s) : slots(s.begin(), s.end()) {}
  size_t count(const Node* n) const { return n->slot ? slots.count(n->slot.get()) : 0; }
};

// A gradient has arrived at a leaf.
void store(GradSlot& slot, Tensor g, const BackwardRequest& r) {
  if (Trace* t = cell_trace(); t && t == context().trace) {
    Tensor old = t->read_grad(slot);
    add_into(old, std::move(g), r.loc);
    t->store_grad(slot, old);
    return;
  }
  TD_CHECK(!is_tracing(), Unsupported,
           "backward() inside vmap or a loop body would write a gradient that belongs to the whole "
           "batch or loop\n"
           "Use grad() inside, or call backward() outside.");
  if (!r.create_graph && node_of(g)) g = detached_alias(g);
  std::lock_guard hold(slot.lock);
  Tensor old = slot.get();
  slot.grad = Tensor();
  add_into(old, std::move(g), r.loc);
  slot.grad = std::move(old);
}

// A composite that a backward walk has kept as one op: its derivative is that of its body.
void body_vjp(VjpCall& c) {
  const OpDef& op = *c.node.op;
  const bool again = is_grad_enabled();
  std::vector<Tensor> in, targets;
  std::vector<Scalar> scalars;
  std::vector<size_t> at;
  for (int i = 0; i < c.n_in(); ++i) {
    in.push_back(c.needs(i) ? variable(c.in(i), again) : c.in(i));
    scalars.push_back(c.scalar(i));
    if (!c.needs(i)) continue;
    at.push_back(static_cast<size_t>(i));
    targets.push_back(in.back());
  }
  BodyCall b{op, c.node.attrs.get(), in, scalars, {}, false};
  {
    EnableGradGuard on;
    op.body_fn(b);
  }
  const size_t n = std::min<size_t>(op.n_out, c.grads.size());
  std::vector<Tensor> d = pull({b.out, n}, c.grads.first(n), targets, again, c.loc());
  for (size_t k = 0; k < at.size(); ++k) c.results[at[k]] = std::move(d[k]);
}

void call_rule(const Node& n, VjpCall& c) {
  const OpDef& op = *n.op;
  // What a rule makes from nothing lies where the gradient does.
  const auto grad =
      std::find_if(c.grads.begin(), c.grads.end(), [](const Tensor& g) { return g.defined(); });
  const DeviceGuard there(grad == c.grads.end() ? context().device : grad->device());
  if (op.vjp_fn)
    op.vjp_fn(c);
  else if (op.family == Family::composite && op.body_fn)
    body_vjp(c);
  else if (op.has(kZeroGrad))
    return;
  else if (op.family == Family::pointwise && (op.expr_fn || op.runtime))
    pointwise_vjp(c);
  else
    TD_FAIL(Unsupported,
            "the op has no derivative\nWrap it in NoGradGuard, call detach() on its input, or give "
            "it one with custom_vjp().");
}

// Run one node's rule and hand its results to the producers of its inputs.
void visit(Walk& walk, Walk::Item& item, const std::vector<bool>& needed,
           const BackwardRequest& r) {
  Node& n = *item.node;
  TD_CHECK(!(n.flags & kReleased), Value,
           "backward() through a graph a second time: the values saved by {} have been freed\n"
           "Call the first backward() with retain_graph = true.",
           n.op->name);
  ScopeGuard scope(n.scope, n.loc);
  if (TD_UNLIKELY(detail::any_absent())) detail::bring_saved(n);
  SmallVec<Tensor, 4> results(n.in.size());
  VjpCall c{n, item.grads, results, item.grads.data()};
  // What the rule makes from nothing lies where the op's results do.
  std::optional<DeviceGuard> there;
  if (!n.out.empty() && !is_host(n.out[0].device)) there.emplace(n.out[0].device);
  try {
    call_rule(n, c);
  } catch (const Error& e) {
    if (!e.op().empty() && e.loc().file) throw;
    throw with_place(e, n.op->name, n.loc);
  }
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (!n.in[i].needs_grad || !results[i].defined()) continue;
    TD_CHECK(results[i].shape() == n.in[i].shape, Internal,
             "the derivative of {} gave {} for input {} of shape {}\nThis is a bug in its rule.",
             n.op->name, results[i].shape().to_string(), i, n.in[i].shape.to_string());
    Walk::Item* to = walk.find(n.in[i].from.get());
    TD_ASSERT(to != nullptr);
    if (!needed.empty() && !needed[static_cast<size_t>(to - walk.items().data())]) continue;
    if (to->grads.size() <= n.in[i].from_index)
      to->grads.resize(std::max<size_t>(to->node->out.size(), n.in[i].from_index + 1));
    add_into(to->grads[n.in[i].from_index], std::move(results[i]), n.loc);
  }
  if (!r.retain_graph && !n.is_traced()) n.release();
}

// The watched leaves that this walk stores gradients in; null where there are none.
std::unique_ptr<WatchedWalk> watched_leaves(Walk& walk, const std::vector<bool>& needed,
                                            const BackwardRequest& r) {
  if (!r.accumulate || !any_watched()) return nullptr;
  std::vector<WatchedLeaf> leaves;
  std::unordered_map<const Node*, size_t> place;
  std::unordered_map<const GradSlot*, size_t> first;
  for (size_t k = 0; k < walk.items().size(); ++k) {
    Node& n = *walk.items()[k].node;
    if ((!needed.empty() && !needed[k]) || !n.slot || !watcher_of(*n.slot)) continue;
    const auto [at, fresh] = first.emplace(n.slot.get(), leaves.size());
    place[&n] = at->second;
    if (fresh) leaves.push_back({n.slot.get()});
    leaves[at->second].nodes.push_back(&n);
  }
  if (leaves.empty()) return nullptr;
  for (size_t k = 0; k < walk.items().size(); ++k) {
    if (!needed.empty() && !needed[k]) continue;
    for (const NodeInput& i : walk.items()[k].node->in)
      if (const auto at = i.needs_grad ? place.find(i.from.get()) : place.end(); at != place.end())
        ++leaves[at->second].edges;
  }
  return std::make_unique<WatchedWalk>(std::move(leaves), r.create_graph);
}

// A node has run, or nothing came to it: leaves that it was the last to add to are complete.
void complete_leaves(Walk& walk, const std::vector<GradSlot*>& leaves, WatchedWalk& watched,
                     const BackwardRequest& r) {
  for (GradSlot* slot : leaves) {
    const WatchedLeaf* leaf = watched.count_down(*slot);
    if (!leaf) continue;
    bool any = false;
    for (Node* n : leaf->nodes) {
      Walk::Item* item = walk.find(n);
      if (item->grads.empty() || !item->grads[0].defined()) continue;
      store(*slot, std::move(item->grads[0]), r);
      item->grads.clear();
      any = true;
    }
    if (any) watched.ready(*slot);
  }
}

// The leaves that a node adds to, once for each edge: a node that has run has no edges any more.
std::vector<GradSlot*> leaves_below(const Node& n) {
  std::vector<GradSlot*> leaves;
  for (const NodeInput& i : n.in)
    if (i.needs_grad && i.from && i.from->slot) leaves.push_back(i.from->slot.get());
  return leaves;
}

}  // namespace

Tensor root_gradient(const Tensor& y, const Tensor& given, SourceLocation loc) {
  TD_CHECK(y.defined(), Value, "backward() on an undefined tensor");
  if (given.defined()) {
    TD_CHECK(given.shape() == y.shape(), Shape, "the gradient must have shape {}, got {}",
             y.shape().to_string(), given.shape().to_string());
    return given;
  }
  TD_CHECK(y.shape().numel() == Dim(1), Shape,
           "backward() without a gradient needs a tensor of one element, this one is {}\n"
           "Reduce it (sum, mean) or pass the gradient.",
           y.shape().to_string());
  TD_CHECK(is_floating(y.dtype()), DType, "backward() expects a floating tensor, got {}",
           to_string(y.dtype()));
  const DeviceGuard there(y.device());
  FillAttrs a{y.shape(), 1.0, y.dtype()};
  return call(op::fill, &a, loc);
}

Tensor variable(const Tensor& t, bool again) {
  if (!is_floating(t.dtype())) return t;
  if (again || is_tracing()) {
    Tensor v;
    if (again) {
      EnableGradGuard on;
      v = identity(t);
    } else {
      NoGradGuard off;
      v = identity(t);
    }
    v.impl()->flags |= detail::kRequiresGrad;
    if (!node_of(v)) set_node(v, Node::make_leaf(make_ref<GradSlot>()), 0);
    return v;
  }
  return detached_alias(t).requires_grad_();
}

std::vector<Tensor> pull(std::span<const Tensor> values, std::span<const Tensor> grads,
                         std::span<const Tensor> targets, bool again, SourceLocation loc) {
  std::vector<Tensor> roots, seeds;
  for (size_t i = 0; i < values.size(); ++i)
    if (grads[i].defined() && values[i].requires_grad()) {
      roots.push_back(values[i]);
      seeds.push_back(grads[i]);
    }
  if (roots.empty() || targets.empty()) return std::vector<Tensor>(targets.size());
  return run_backward({roots, seeds, targets, false, true, again, loc});
}

bool depends_on_others(std::span<const Tensor> roots, std::span<const Tensor> targets) {
  std::unordered_map<const Node*, bool> seen;
  for (const Tensor& t : targets) seen[node_of(t)] = true;
  std::vector<const Node*> stack;
  auto push = [&](const Node* n) {
    if (n && seen.emplace(n, true).second) stack.push_back(n);
  };
  for (const Tensor& r : roots)
    if (r.requires_grad()) push(node_of(r));
  while (!stack.empty()) {
    const Node* n = stack.back();
    stack.pop_back();
    if (n->slot) return true;
    for (const NodeInput& i : n->in)
      if (i.needs_grad) push(i.from.get());
  }
  return false;
}

std::vector<Tensor> run_backward(const BackwardRequest& r) {
  const DeviceGuard on_host(cpu);  // visit() goes where a node is
  Context& c = context();
  NoGradGuard mode(!r.create_graph);
  struct Inside {
    bool& flag;
    bool old;
    ~Inside() { flag = old; }
  } inside{c.in_backward, std::exchange(c.in_backward, true)};

  Walk walk(g_walks.fetch_add(1, std::memory_order_relaxed));
  walk.collect(r.roots);
  std::unordered_map<const Node*, SmallVec<uint32_t, 1>> wanted;
  for (size_t i = 0; i < r.targets.size(); ++i)
    if (Node* n = node_of(r.targets[i])) wanted[n].push_back(static_cast<uint32_t>(i));
  for (size_t i = 0; i < r.roots.size(); ++i) {
    Node* n = node_of(r.roots[i]);
    Walk::Item* item = n ? walk.find(n) : nullptr;
    if (!item) continue;
    uint32_t at = r.roots[i].impl()->out_index;
    if (item->grads.size() <= at) item->grads.resize(std::max<size_t>(n->out.size(), at + 1));
    add_into(item->grads[at], r.root_grads[i], r.loc);
  }
  std::vector<Tensor> results(r.targets.size());
  std::vector<bool> needed;  // empty: all
  if (!r.accumulate) {
    needed = walk.above(wanted);
    walk.order_above(needed);
  } else if (!r.only.empty()) {
    needed = walk.above(SlotsOf{r.only});
  }
  const std::unique_ptr<WatchedWalk> watched = watched_leaves(walk, needed, r);
  for (size_t at = 0; at < walk.items().size(); ++at) {
    Walk::Item& item = walk.items()[at];
    if (!needed.empty() && !needed[at]) continue;
    std::vector<GradSlot*> below;
    if (watched) below = leaves_below(*item.node);
    bool any = false;
    for (const Tensor& g : item.grads) any |= g.defined();
    if (!any) {
      if (watched) complete_leaves(walk, below, *watched, r);
      continue;
    }
    Node& n = *item.node;
    item.grads.resize(std::max<size_t>(item.grads.size(), n.out.size()));
    if (!wanted.empty())
      if (auto at = wanted.find(&n); at != wanted.end())
        for (uint32_t k : at->second) results[k] = item.grads[r.targets[k].impl()->out_index];
    if (n.slot) {
      if (r.accumulate) store(*n.slot, std::move(item.grads[0]), r);
      item.grads.clear();
      if (watched) watched->ready(*n.slot);  // a root that is a leaf
      continue;
    }
    // The leaf is outside this trace: its gradient would be lost.
    TD_CHECK(!(r.accumulate && n.op == &op::capture), Unsupported,
             "backward() inside vmap or a loop body reaches a tensor from outside, whose gradient "
             "belongs to all of it\nUse grad() inside, or call backward() outside.");
    if (!n.in.empty()) visit(walk, item, needed, r);
    item.grads.clear();
    if (watched) complete_leaves(walk, below, *watched, r);
  }
  if (watched) watched->end();
  return results;
}

}  // namespace tandem
