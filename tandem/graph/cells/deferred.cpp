// SPDX-License-Identifier: Apache-2.0
// Deferred values: a storage owns the node whose output it stands for.
#include "tandem/graph/cells/deferred.h"

#include <algorithm>

#include "tandem/graph/apply_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/dry_run.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

constexpr int64_t kSmall = 4096;     ///< bytes; what has no more is computed at once
constexpr uint32_t kDeepest = 1000;  ///< recipes on recipes: their computation recurses

bool is_large(const Spec& s) {
  return s.shape.numel().value() * static_cast<int64_t>(size_of(s.dtype)) > kSmall;
}

/// Whatever is on when a value is needed, it is computed as under plain eager.
class PlainModes {
 public:
  explicit PlainModes(bool deterministic) : before_(std::exchange(context(), Context())) {
    context().grad_enabled = false;
    context().deterministic = deterministic;
  }
  ~PlainModes() { context() = std::move(before_); }
  PlainModes(const PlainModes&) = delete;
  PlainModes& operator=(const PlainModes&) = delete;

 private:
  Context before_;
};

struct Recipe final : detail::Deferred {
  Ref<Node> node;
  size_t index;
  bool deterministic;

  Recipe(Ref<Node> n, size_t i, bool d) : node(std::move(n)), index(i), deterministic(d) {
    ++detail::absent_count();
  }
  ~Recipe() override { --detail::absent_count(); }
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  Tensor compute() const override {
    const Node& n = *node;
    const PlainModes plain(deterministic);
    std::vector<Operand> in;
    for (const NodeInput& i : n.in)
      in.push_back(i.is_scalar ? Operand(i.scalar, n.loc)
                               : Operand(i.present ? detail::computed(i.value) : Tensor(), n.loc));
    // A copy of what nobody else has.
    if (n.op == &op::copy && in[0].owned().impl()->donatable() && in[0].owned().is_contiguous())
      return std::move(in[0].owned());
    const ApplyOptions options{.rng = &n.rng};
    Tensor out[kMaxOpOuts];
    apply(*n.op, n.attrs.get(), in, out, n.loc, options);
    return std::move(out[index]);
  }
};

const Recipe* recipe_of(const Tensor& t) {
  return t.defined() ? static_cast<const Recipe*>(detail::deferred_of(*t.impl())) : nullptr;
}

// What its results depend on is known, and worth keeping as a recipe: shapes, small tensors and
// other recipes. Values are made on the host, and may then go to a device.
bool can_wait(const Call& k) {
  const bool moves = &k.op == &op::to_device;
  if (k.record || k.hidden || k.context.slow & kDryRun || !is_host(k.device) || k.op.has(kEffect) ||
      k.op.has(kDataSized) || (k.op.has(kSetsDevice) && !moves))
    return false;
  bool deferred = false;
  for (const Tensor& t : k.tensors) {
    if (!t.defined()) continue;
    const Recipe* r = recipe_of(t);
    if (r ? r->node->depth >= kDeepest : is_large(spec_of(t))) return false;
    deferred |= r != nullptr;
  }
  if (k.op.family == Family::view && !deferred) return false;
  for (int o = 0; o < k.op.shown(); ++o) {
    const Spec& s = k.infer.out[o];
    if (s.shape.is_symbolic() || (!is_host(s.device) && !moves) || !is_large(s)) return false;
  }
  return true;
}

}  // namespace

DeferredInitGuard::DeferredInitGuard(bool on)
    : old_(context().slow), old_grad_(context().grad_enabled) {
  context().slow = on ? old_ | kDeferred : old_ & ~kDeferred;
  if (on) context().grad_enabled = false;
}
DeferredInitGuard::~DeferredInitGuard() {
  context().slow = (context().slow & ~kDeferred) | (old_ & kDeferred);
  context().grad_enabled = old_grad_;
}

bool defer(Call& k, Tensor* out) {
  if (!can_wait(k)) {
    for (Tensor& t : k.tensors) t = detail::computed(t);
    return false;
  }
  const Ref<Node> n = Node::make();
  n->op = &k.op;
  if (k.op.attrs) n->attrs = AttrsHolder(k.op.attrs, k.op_attrs);
  n->loc = user_line(k.loc);
  if (k.op.has(kRandom)) n->rng = k.options.rng ? *k.options.rng : detail::next_rng_key();
  for (size_t i = 0; i < k.tensors.size(); ++i) {
    NodeInput& in = n->in.emplace_back();
    in.is_scalar = k.infer.present[i] == 2;
    in.present = k.tensors[i].defined();
    if (in.is_scalar) in.scalar = k.scalars[i];
    if (!in.present) continue;
    in.value = detached_alias(k.tensors[i]);
    if (const Recipe* r = recipe_of(in.value)) n->depth = std::max(n->depth, r->node->depth + 1);
  }
  for (int o = 0; o < k.op.shown(); ++o) {
    const Spec& s = k.infer.out[o];
    out[o] = detail::make_deferred(s.shape, s.dtype,
                                   new Recipe(n, static_cast<size_t>(o), k.context.deterministic));
    if (is_host(s.device)) continue;
    out[o].impl()->device = s.device;
    out[o].impl()->flags |= detail::kOnDevice;
  }
  return true;
}

namespace detail {

bool is_deferred(const Tensor& t) { return t.defined() && deferred_of(*t.impl()); }

Tensor computed(const Tensor& t) {
  const Recipe* r = any_absent() ? recipe_of(t) : nullptr;
  return r ? r->compute() : t;
}

}  // namespace detail
}  // namespace tandem
