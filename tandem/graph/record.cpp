// SPDX-License-Identifier: Apache-2.0
// Recording a call: on the tape (keeping only what the derivative reads) or in a trace.
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/expression/derivative.h"
#include "tandem/graph/trace.h"

namespace tandem {
namespace {

void fill_input(NodeInput& i, const Tensor& t, Scalar scalar, bool is_scalar, bool keep,
                bool traced, uint32_t& depth) {
  if (is_scalar) {
    i.is_scalar = true;
    i.scalar = scalar;
    i.dtype = scalar.dtype();
    return;
  }
  if (!t.defined()) return;
  i.present = true;
  i.dtype = t.dtype();
  i.device = t.device();
  i.shape = t.shape();
  i.needs_grad = t.requires_grad();
  if (keep || traced) i.value = t;
  if (i.needs_grad || traced) {
    Node* from = node_of(t);
    i.from = Ref<Node>::share(from);
    i.from_index = static_cast<uint16_t>(t.impl()->out_index);
    // What needs no gradient does not count: the tape does not have it, and a trace walks as it
    // does.
    if (i.needs_grad && from && from->depth >= depth) depth = from->depth + 1;
  }
}

}  // namespace

uint64_t saves_of(const OpDef& op) {
  constexpr uint64_t kUnknown = OpRuntime::kSavesUnknown;
  uint64_t s = op.runtime->saves.load(std::memory_order_relaxed);
  if (TD_LIKELY(s != kUnknown)) return s;
  bool derive = op.family == Family::pointwise && !op.vjp_fn && !op.has(kZeroGrad) &&
                !op.has(kNotDifferentiable);
  const bool by_body = op.family == Family::composite && op.body_fn && !op.vjp_fn;
  s = derive ? uint64_t{pointwise_saves_in(op)} | uint64_t{pointwise_saves_out(op)} << 32
             : uint64_t{by_body ? ~0u : op.saves_in} | uint64_t{op.saves_out} << 32;
  op.runtime->saves.store(s, std::memory_order_relaxed);
  return s;
}

void record_tape(const OpDef& op, const void* attrs, std::span<const Tensor> in,
                 std::span<const Scalar> scalars, std::span<const uint8_t> present, Tensor* out,
                 SourceLocation loc, RngKey rng, bool show_hidden) {
  Ref<Node> n = Node::make();
  n->op = &op;
  if (op.attrs) n->attrs = AttrsHolder(op.attrs, attrs);
  n->loc = loc;
  const Context& c = context();
  n->scope = c.scope ? c.scope->path : 0;
  n->rng = rng;
  uint64_t saves = saves_of(op);
  uint32_t depth = 1;
  n->in.reserve(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    bool keep = saves >> std::min<size_t>(i, op.n_in - 1) & 1;
    bool scalar = !present.empty() && present[i] == 2;
    fill_input(n->in.emplace_back(), in[i], scalar ? scalars[i] : Scalar(), scalar, keep, false,
               depth);
  }
  n->depth = depth;
  for (int o = 0; o < op.n_out; ++o) {
    NodeOutput& y = n->out.emplace_back();
    if (!out[o].defined()) continue;
    y.dtype = out[o].dtype();
    y.device = out[o].device();
    y.shape = out[o].shape();
    if (saves >> (32 + o) & 1) y.saved = detached_alias(out[o]);
    if (op.hidden(o) && !show_hidden) {
      out[o] = Tensor();
      continue;
    }
    // An op may pass an input through (identity on an undefined optional): give it its own header.
    if (!out[o].impl()->refs.unique() && !out[o].is_symbolic()) out[o] = detached_alias(out[o]);
    set_node(out[o], n, static_cast<uint32_t>(o));
    if (is_floating(y.dtype)) out[o].impl()->flags |= detail::kRequiresGrad;
  }
}

void record_trace(Call& k, Tensor* out) {
  Trace& trace = *k.context.trace;
  if (trace.lazy) return trace.lazy->record(k, out);
  Ref<Node> n = Node::make();
  n->op = &k.op;
  if (k.op.attrs) n->attrs = AttrsHolder(k.op.attrs, k.op_attrs);
  n->loc = user_line(k.loc);
  n->scope = k.context.scope ? k.context.scope->path : 0;
  n->flags = kTraced;
  if (!k.context.grad_enabled) n->flags |= kNoGrad;
  n->graph = trace.graph.get();
  n->index = static_cast<uint32_t>(trace.graph->nodes.size());
  if (k.op.has(kRandom))
    n->rng = k.options.rng ? *k.options.rng : RngKey{0, trace.graph->rng_draws++};
  uint32_t depth = 0;  // as a leaf of the tape, if no input needs a gradient
  for (size_t i = 0; i < k.tensors.size(); ++i) {
    NodeInput& in = n->in.emplace_back();
    fill_input(in, k.tensors[i], k.scalars[i], k.infer.present[i] == 2, true, true, depth);
    in.needs_grad = in.needs_grad && k.record;
  }
  n->depth = depth;
  for (int o = 0; o < k.op.n_out; ++o) {
    if (k.op.hidden(o) && !k.hidden) break;
    const Spec& s = k.infer.out[o];
    NodeOutput& y = n->out.emplace_back();
    y.dtype = s.dtype;
    y.device = s.device;
    y.shape = s.shape;
    if (k.op.hidden(o) && !k.options.hidden) continue;
    Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_symbolic(s.shape, s.dtype, s.device)));
    set_node(t, n, static_cast<uint32_t>(o));
    if (k.record && is_floating(s.dtype)) t.impl()->flags |= detail::kRequiresGrad;
    out[o] = std::move(t);
  }
  trace.graph->nodes.push_back(std::move(n));
}

}  // namespace tandem
