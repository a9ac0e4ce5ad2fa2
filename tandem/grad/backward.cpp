// SPDX-License-Identifier: Apache-2.0
// Tensor's gradient methods and grad() of computed values.
#include "tandem/grad/autograd.h"
#include "tandem/grad/engine_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"

namespace tandem {

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph,
                      Where where) const {
  try {
    Tensor g = root_gradient(*this, gradient, where);
    TD_CHECK(requires_grad(), Value,
             "this tensor does not depend on anything that requires a gradient\n"
             "Was it computed under NoGradGuard, or detached?");
    run_backward({{this, 1}, {&g, 1}, {}, true, retain_graph || create_graph, create_graph, where});
  } catch (const Error& e) {
    if (!e.op().empty()) throw;
    throw with_place(e, "backward", where);
  }
}

Tensor& Tensor::requires_grad_(bool on, Where where) & {
  detail::TensorImpl* i = impl_.get();
  if (!i) throw_undefined();
  Node* n = node_of(*this);
  try {
    TD_CHECK(!on || is_floating(i->dtype), DType,
             "only floating tensors can require gradients, this one is {}", to_string(i->dtype));
    TD_CHECK(!n || n->slot || n->is_traced(), Value,
             "requires_grad_ on the result of an op\nCall detach() first.");
  } catch (const Error& e) {
    throw with_place(e, "requires_grad_", where);
  }
  if (on == requires_grad()) return *this;
  if (!on) {
    *this = tandem::detached_alias(*this);
    return *this;
  }
  i->flags |= detail::kRequiresGrad;
  if (!n) set_node(*this, Node::make_leaf(make_ref<GradSlot>()), 0);
  return *this;
}

Tensor Tensor::requires_grad_(bool on, Where where) && {
  Tensor t = std::move(*this);
  t.requires_grad_(on, where);
  return t;
}

Tensor Tensor::grad() const {
  Node* n = node_of(*this);
  if (!n || !n->slot) return Tensor();
  if (Trace* t = cell_trace()) return t->read_grad(*n->slot);
  std::lock_guard hold(n->slot->lock);
  return n->slot->get();
}

void Tensor::zero_grad() const {
  Node* n = node_of(*this);
  if (!n || !n->slot) return;
  if (Trace* t = cell_trace()) return t->store_grad(*n->slot, Tensor());
  std::lock_guard hold(n->slot->lock);
  n->slot->set(Tensor());
}

Tensor Tensor::detach() const {
  if (!defined()) return Tensor();
  if (is_symbolic()) {
    NoGradGuard no_grad;
    return call(op::identity, nullptr, Where::here(), *this);
  }
  return detached_alias(*this);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         GradOptions options, Where where) {
  try {
    std::vector<Tensor> grads;
    for (size_t i = 0; i < outputs.size(); ++i)
      grads.push_back(root_gradient(
          outputs[i], i < options.grad_outputs.size() ? options.grad_outputs[i] : Tensor(), where));
    for (size_t i = 0; i < inputs.size(); ++i)
      TD_CHECK(inputs[i].defined() && inputs[i].requires_grad(), Value,
               "input {} does not require a gradient\nCall requires_grad_() on it before use.", i);
    std::vector<Tensor> g =
        run_backward({outputs, grads, inputs, false, options.retain_graph || options.create_graph,
                      options.create_graph, where});
    for (size_t i = 0; i < g.size(); ++i)
      TD_CHECK(g[i].defined() || options.allow_unused, Value,
               "input {} plays no part in the outputs\nSet allow_unused = true to get an "
               "undefined tensor.",
               i);
    return g;
  } catch (const Error& e) {
    if (!e.op().empty()) throw;
    throw with_place(e, "grad", where);
  }
}

Tensor grad(const Tensor& output, const Tensor& input, GradOptions options, Where where) {
  return grad(std::vector<Tensor>{output}, std::vector<Tensor>{input}, std::move(options),
              where)[0];
}

}  // namespace tandem
