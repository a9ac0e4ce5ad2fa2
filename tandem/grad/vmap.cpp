// SPDX-License-Identifier: Apache-2.0
// vmap: traces f on one example, then runs the graph with each node replaced by its `batch` rule. A
// batched value has its batch dimension first. Rows without a rule run slice by slice (one warning
// each); a composite without one is batched through its body.
#include <mutex>
#include <set>

#include "tandem/base/log.h"
#include "tandem/grad/control_flow_internal.h"
#include "tandem/grad/engine_internal.h"
#include "tandem/grad/transforms.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/batch.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

struct Value {
  Tensor t;
  bool batched = false;
};

class BatchRunner {
 public:
  BatchRunner(const Graph& g, Dim size) : g_(g), size_(size), env_(g.nodes.size()) {}

  void set(const Tensor& placeholder, Value v) {
    env_[node_of(placeholder)->index] = {std::move(v)};
  }
  Value get(const Tensor& t) const { return env_[node_of(t)->index][t.impl()->out_index]; }

  void walk() {
    for (const Ref<Node>& n : g_.nodes)
      if (env_[n->index].empty()) step(*n);
  }

 private:
  void step(const Node& n) {
    SmallVec<Tensor, 4> in;
    std::vector<char> batched;
    bool any = control::draws(n);
    for (const NodeInput& i : n.in) {
      Value v;
      if (i.present) v = env_[i.from->index][i.from_index];
      any |= v.batched;
      in.push_back(v.t);
      batched.push_back(v.batched);
    }
    ScopeGuard scope(n.scope, n.loc);
    NoGradGuard no_grad(!is_grad_enabled() || (n.flags & kNoGrad));
    std::vector<Value>& out = env_[n.index];
    if (!any)
      apply_plain(n, in, out);
    else if (n.op->batch_fn)
      apply_rule(n, in, batched, out);
    else if (n.op->family == Family::pointwise)
      apply_pointwise(n, in, batched, out);
    else if (n.op->body_fn && n.op->family == Family::composite)
      apply_body(n, in, batched, out);
    else
      apply_loop(n, in, batched, out);
    if (out.empty()) out.resize(1);
  }

  static void call_node(const Node& n, std::span<const Tensor> in, Tensor* out) {
    std::vector<Operand> ops;
    ops.reserve(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      if (n.in[i].is_scalar)
        ops.emplace_back(n.in[i].scalar, n.loc);
      else
        ops.emplace_back(in[i], n.loc);
    }
    ApplyOptions options;
    options.hidden = n.out.size() > static_cast<size_t>(n.op->shown());
    apply(*n.op, n.attrs.get(), ops, out, n.loc, options);
  }

  static void apply_plain(const Node& n, std::span<const Tensor> in, std::vector<Value>& out) {
    Tensor y[kMaxOpOuts];
    call_node(n, in, y);
    for (size_t o = 0; o < n.out.size(); ++o) out.push_back({y[o], false});
  }

  void apply_rule(const Node& n, std::span<const Tensor> in, const std::vector<char>& batched,
                  std::vector<Value>& out) const {
    bool flags[64] = {};
    TD_CHECK(batched.size() <= 64, Unsupported, "vmap of an op with {} inputs", batched.size());
    for (size_t i = 0; i < batched.size(); ++i) flags[i] = batched[i];
    BatchCall c{n, in, {flags, batched.size()}, size_};
    n.op->batch_fn(c);
    if (c.by_slices) return apply_loop(n, in, batched, out);
    for (size_t o = 0; o < n.out.size(); ++o) out.push_back({c.out[o], c.out_batched[o]});
  }

  // Align ranks after the batch dimension; broadcasting does the rest.
  void apply_pointwise(const Node& n, std::span<const Tensor> in, const std::vector<char>& batched,
                       std::vector<Value>& out) const {
    int rank = 0;
    for (const NodeInput& i : n.in) rank = std::max(rank, i.shape.rank());
    SmallVec<Tensor, 4> aligned;
    for (size_t i = 0; i < in.size(); ++i) {
      Tensor t = in[i];
      int own = n.in[i].shape.rank();
      if (batched[i] && own < rank) {
        Shape s{size_};
        for (int k = own; k < rank; ++k) s.push_back(1);
        for (Dim d : n.in[i].shape) s.push_back(d);
        t = reshape(t, s, n.loc);
      }
      aligned.push_back(t);
    }
    Tensor y[kMaxOpOuts];
    call_node(n, aligned, y);
    for (size_t o = 0; o < n.out.size(); ++o) out.push_back({y[o], true});
  }

  // A composite: its body on the per-example Specs is a graph, which is batched in turn.
  void apply_body(const Node& n, std::span<const Tensor> in, const std::vector<char>& batched,
                  std::vector<Value>& out) const {
    std::vector<Spec> specs;
    for (const NodeInput& i : n.in)
      if (i.present) specs.emplace_back(i.dtype, i.shape);
    bool hidden = n.out.size() > static_cast<size_t>(n.op->shown());
    Ref<Graph> body = trace(
        [&](std::span<const Tensor> given) {
          SmallVec<Tensor, 4> ins;
          SmallVec<Scalar, 4> scalars;
          size_t next = 0;
          for (const NodeInput& i : n.in) {
            ins.push_back(i.present ? given[next++] : Tensor());
            scalars.push_back(i.scalar);
          }
          BodyCall b{*n.op, n.attrs.get(), ins, scalars, {}, hidden};
          n.op->body_fn(b);
          return Tensors(b.out, b.out + n.out.size());
        },
        specs, Captures::as_inputs);
    BatchRunner r(*body, size_);
    size_t next = 0;
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.in[i].present) r.set(body->inputs[next++], {in[i], static_cast<bool>(batched[i])});
    for (const Graph::Capture& c : body->captures) r.set(c.inner, {c.outer, false});
    r.walk();
    for (const Tensor& t : body->outputs) out.push_back(r.get(t));
  }

  void apply_loop(const Node& n, std::span<const Tensor> in, const std::vector<char>& batched,
                  std::vector<Value>& out) const {
    warn_once(*n.op);
    if (size_.value() == 0) {
      for (const NodeOutput& s : n.out) {
        Shape shape{0};
        for (Dim d : s.shape) shape.push_back(d);
        out.push_back({zeros(shape, s.dtype, n.loc), true});
      }
      return;
    }
    std::vector<Tensors> slices(n.out.size());
    for (int64_t b = 0; b < size_.value(); ++b) {
      SmallVec<Tensor, 4> one;
      for (size_t i = 0; i < in.size(); ++i)
        one.push_back(batched[i] ? select(in[i], 0, b, n.loc) : in[i]);
      Tensor y[kMaxOpOuts];
      call_node(n, one, y);
      for (size_t o = 0; o < n.out.size(); ++o) slices[o].push_back(y[o]);
    }
    for (Tensors& s : slices) out.push_back({stack(s, 0, n.loc), true});
  }

  static void warn_once(const OpDef& op) {
    static std::mutex lock;
    static std::set<std::string>* warned = new std::set<std::string>;
    std::lock_guard hold(lock);
    if (warned->insert(op.name).second)
      log_warning("vmap: {} has no batch rule and runs slice by slice", op.name);
  }

  const Graph& g_;
  Dim size_;
  std::vector<std::vector<Value>> env_;
};

// A result with the batch dimension first, even if it does not depend on a batched value.
Tensor batched_value(const Value& v, Dim size, SourceLocation loc) {
  if (v.batched) return v.t;
  Shape s{size};
  for (Dim d : v.t.shape()) s.push_back(d);
  return expand(unsqueeze(v.t, 0, loc), s, loc);
}

Tensor batch_first(const Tensor& x, int dim, SourceLocation loc) {
  return dim == 0 ? x : movedim(x, {dim}, {0}, loc);
}

}  // namespace

Tensors run_batched(const Graph& g, Dim size, std::span<const Tensor> inputs,
                    const std::vector<char>& batched) {
  BatchRunner r(g, size);
  for (size_t i = 0; i < inputs.size(); ++i)
    r.set(g.inputs[i], {inputs[i], static_cast<bool>(batched[i])});
  for (const Graph::Capture& c : g.captures) r.set(c.inner, {c.outer, false});
  r.walk();
  Tensors out;
  for (const Tensor& t : g.outputs) out.push_back(batched_value(r.get(t), size, SourceLocation{}));
  return out;
}

namespace detail {

Tensors vmap_call(TensorFn f, std::span<const Tensor> x, const std::vector<int>& in_dims,
                  int out_dim, SourceLocation loc) try {
  TD_CHECK(in_dims.empty() || in_dims.size() == x.size(), Value,
           "in_dims has {} entries for {} arguments", in_dims.size(), x.size());
  Tensors args;
  std::vector<bool> batched;
  std::vector<Spec> specs;
  Dim size = -1;
  for (size_t i = 0; i < x.size(); ++i) {
    TD_CHECK(x[i].defined(), Value, "argument {} is an undefined tensor", i);
    int dim = in_dims.empty() ? 0 : in_dims[i];
    batched.push_back(dim != kNoBatchDim);
    if (dim == kNoBatchDim) {
      args.push_back(x[i]);
      specs.push_back(spec_of(x[i]));
      continue;
    }
    TD_CHECK(x[i].dim() > 0, Shape, "argument {} has no dimension to map over", i);
    Tensor t = batch_first(x[i], normalize_dim(dim, x[i].dim()), loc);
    TD_CHECK(size == Dim(-1) || dims_equal(size, t.shape(0)), Shape,
             "argument {} has {} examples, an earlier one {}", i, t.shape(0).to_string(),
             size.to_string());
    size = t.shape(0);
    Spec s = spec_of(t);
    s.shape.erase(0);
    specs.push_back(s);
    args.push_back(std::move(t));
  }
  TD_CHECK(!(size == Dim(-1)), Value, "no argument has a batch dimension");
  Ref<Graph> g =
      trace([&](std::span<const Tensor> in) { return f(in); }, specs, Captures::as_inputs);
  BatchRunner r(*g, size);
  for (size_t i = 0; i < args.size(); ++i) r.set(g->inputs[i], {args[i], batched[i]});
  for (const Graph::Capture& c : g->captures) r.set(c.inner, {c.outer, false});
  r.walk();
  Tensors out;
  for (const Tensor& t : g->outputs) {
    Tensor v = batched_value(r.get(t), size, loc);
    out.push_back(out_dim == 0 ? v : movedim(v, {0}, {out_dim}, loc));
  }
  return out;
} catch (const Error& e) {
  rethrow_at(e, "vmap", loc);
}

}  // namespace detail
}  // namespace tandem
