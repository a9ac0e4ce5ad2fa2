// SPDX-License-Identifier: Apache-2.0
// Creating and freeing nodes. A tape of millions of nodes is freed in a loop, never by recursion.
#include "tandem/graph/node.h"

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/graph/vjp.h"
#include "tandem/tensor/allocator.h"

namespace tandem {

const Tensor& GradSlot::get() const {
  TD_CHECK(!consumed, Value,
           "a compiled step used this gradient in its update and kept no copy\n"
           "Compile it with {{.keep_grads = true}} to read gradients, or call zero_grad() first.");
  return grad;
}
namespace {

thread_local bool t_freeing = false;
thread_local Node* t_pending = nullptr;

void free_node(Node* n) noexcept {
  n->~Node();
  detail::deallocate(n, sizeof(Node));
}

// Freeing a node drops its inputs, which come back here: they are queued in a chain.
void destroy_node(detail::NodeBase* base) {
  Node* n = static_cast<Node*>(base);
  if (t_freeing) {
    n->next_free = t_pending;
    t_pending = n;
    return;
  }
  t_freeing = true;
  free_node(n);
  while (t_pending) {
    Node* next = t_pending;
    t_pending = next->next_free;
    free_node(next);
  }
  t_freeing = false;
}

}  // namespace

Ref<Node> Node::make() {
  Node* n = ::new (detail::allocate(sizeof(Node))) Node();
  n->destroy = destroy_node;
  return Ref<Node>::adopt(n);
}

Ref<Node> Node::make_leaf(Ref<GradSlot> slot) {
  Ref<Node> n = make();
  n->flags = kLeaf;
  n->slot = std::move(slot);
  return n;
}

void Node::release() {
  flags |= kReleased;
  for (NodeInput& i : in) {
    i.value = Tensor();
    i.from.reset();
  }
  for (NodeOutput& o : out) o.saved = Tensor();
  attrs = AttrsHolder();  // releases what closures have saved
}

void set_node(Tensor& t, const Ref<Node>& node, uint32_t index) {
  detail::TensorImpl* i = t.impl();
  if (node) node->add_ref();
  if (i->node) i->node->drop_ref();
  i->node = node.get();
  i->out_index = index;
}

Tensor detached_alias(const Tensor& t) {
  const detail::TensorImpl& i = *t.impl();
  if (TD_UNLIKELY(i.has(detail::kSymbolic)))
    for (Trace* trace = context().trace; trace; trace = trace->parent)
      if (trace->lazy && trace->lazy->owns(i)) return trace->lazy->alias(t);
  return Tensor(
      Ref<detail::TensorImpl>::adopt(detail::new_view(i, i.shape, i.strides, i.data, i.dtype)));
}

Tensor VjpCall::out(int i) const {
  Ref<Node> self = Ref<Node>::share(const_cast<Node*>(&node));
  if (node.is_traced()) {
    Tensor t(Ref<detail::TensorImpl>::adopt(
        detail::new_symbolic(node.out[i].shape, node.out[i].dtype, node.out[i].device)));
    set_node(t, self, static_cast<uint32_t>(i));
    if (is_floating(t.dtype())) t.impl()->flags |= detail::kRequiresGrad;
    return t;
  }
  const Tensor& saved = node.out[i].saved;
  TD_ASSERT(saved.defined());
  if (!context().grad_enabled || !is_floating(saved.dtype())) return saved;
  Tensor t = detached_alias(saved);
  set_node(t, self, static_cast<uint32_t>(i));
  t.impl()->flags |= detail::kRequiresGrad;
  return t;
}

}  // namespace tandem
