// SPDX-License-Identifier: Apache-2.0
// The operators of Tensor. `/` is true division and `%` takes the sign of the divisor, as in
// PyTorch.
#include "tandem/graph/node.h"
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem {

#define TD_BINARY(symbol, function)                   \
  Tensor operator symbol(Operand a, Operand b) {      \
    const SourceLocation loc = a.loc();               \
    return function(std::move(a), std::move(b), loc); \
  }
TD_BINARY(+, add)
TD_BINARY(-, sub)
TD_BINARY(*, mul)
TD_BINARY(/, div)
TD_BINARY(%, remainder)
TD_BINARY(==, eq)
TD_BINARY(!=, ne)
TD_BINARY(<, lt)
TD_BINARY(<=, le)
TD_BINARY(>, gt)
TD_BINARY(>=, ge)
TD_BINARY(&, bitwise_and)
TD_BINARY(|, bitwise_or)
TD_BINARY(^, bitwise_xor)
#undef TD_BINARY

Tensor operator-(Operand a) {
  const SourceLocation loc = a.loc();
  return neg(a.take(), loc);
}
Tensor operator~(Operand a) {
  const SourceLocation loc = a.loc();
  return bitwise_not(a.take(), loc);
}

// The leaf that `a` is by requires_grad_(), or was: the value of a Param belongs to its cell.
static Ref<Node> leaf_of(const Tensor& a) {
  Node* n = node_of(a);
  if (!n || (n->flags & kOfCell) || !(n->flags & (kLeaf | kRebound))) return {};
  return Ref<Node>::share(n);
}

// `out` is the new value of a handle that was the leaf `leaf`, or once was one.
static void replace_leaf(Tensor& out, const Ref<Node>& leaf, const Spec& was) {
  Node* n = node_of(out);
  if (n) {
    n->flags |= kRebound;
  } else if (leaf->is_leaf() && !is_grad_enabled() && spec_of(out) == was) {
    if (!out.impl()->refs.unique()) out = detached_alias(out);
    set_node(out, leaf, 0);
    out.impl()->flags |= detail::kRequiresGrad;
  }
}

// The old value is passed as a temporary, so that its buffer may be reused; apply() restores the
// operand if it throws.
static Tensor& assign_plain(const OpDef& row, Tensor& a, Operand b) {
  const SourceLocation loc = b.loc();
  Operand in[] = {b.refers_to(a) ? Operand(a, loc) : Operand(std::move(a), loc), std::move(b)};
  Tensor out;
  try {
    apply(row, nullptr, in, &out, loc);
  } catch (...) {
    if (in[0].is_temporary()) a = std::move(in[0].owned());
    throw;
  }
  return a = std::move(out);
}
TD_COLD static Tensor& assign_to_leaf(const OpDef& row, Tensor& a, Operand b,
                                      const Ref<Node>& leaf) {
  const Spec was = spec_of(a);
  assign_plain(row, a, std::move(b));
  replace_leaf(a, leaf, was);
  return a;
}
static Tensor& assign(const OpDef& row, Tensor& a, Operand b) {
  const Ref<Node> leaf = leaf_of(a);
  if (TD_UNLIKELY(static_cast<bool>(leaf))) return assign_to_leaf(row, a, std::move(b), leaf);
  return assign_plain(row, a, std::move(b));
}
Tensor& operator+=(Tensor& a, Operand b) { return assign(op::add, a, std::move(b)); }
Tensor& operator-=(Tensor& a, Operand b) { return assign(op::sub, a, std::move(b)); }
Tensor& operator*=(Tensor& a, Operand b) { return assign(op::mul, a, std::move(b)); }
Tensor& operator/=(Tensor& a, Operand b) { return assign(op::div, a, std::move(b)); }

}  // namespace tandem
