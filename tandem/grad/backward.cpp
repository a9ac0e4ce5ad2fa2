// SPDX-License-Identifier: Apache-2.0
// Tensor's gradient methods and grad() of computed values.
#include <fmt/format.h>

#include "tandem/grad/autograd.h"
#include "tandem/grad/engine_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"

namespace tandem {

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph,
                      SourceLocation loc) const {
  try {
    Tensor g = root_gradient(*this, gradient, loc);
    TD_CHECK(requires_grad(), Value,
             "this tensor does not depend on anything that requires a gradient\n"
             "Was it computed under NoGradGuard, or detached?");
    run_backward({{this, 1}, {&g, 1}, {}, true, retain_graph || create_graph, create_graph, loc});
  } catch (const Error& e) {
    if (!e.op().empty()) throw;
    throw with_place(e, "backward", loc);
  }
}

Tensor& Tensor::requires_grad_(bool on, SourceLocation loc) & {
  detail::TensorImpl* i = impl_.get();
  if (!i) throw_undefined();
  Node* n = node_of(*this);
  try {
    TD_CHECK(!on || is_floating(i->dtype), DType,
             "only floating tensors can require gradients, this one is {}", to_string(i->dtype));
    TD_CHECK(!n || n->slot || n->is_traced(), Value,
             "requires_grad_ on the result of an op\nCall detach() first.");
  } catch (const Error& e) {
    throw with_place(e, "requires_grad_", loc);
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

Tensor Tensor::requires_grad_(bool on, SourceLocation loc) && {
  Tensor t = std::move(*this);
  t.requires_grad_(on, loc);
  return t;
}

namespace {

// A result of ops has no place for a gradient.
[[noreturn]] TD_COLD void refuse_grad(const Node& n) {
  const std::string from = fmt::format(
      "{}{}", n.op->name,
      n.loc.is_user() ? fmt::format(" ({}:{})", n.loc.file, n.loc.line) : std::string());
  TD_CHECK(n.op != &op::input && n.op != &op::capture, Unsupported,
           "an argument of a traced function has no gradient to read\n"
           "Write grad(loss, x) inside it, or read x.grad() outside.");
  TD_CHECK(!(n.flags & kRebound), Value,
           "`w += v` has given this handle a new value, the result of {}: it is no longer a leaf, "
           "and only leaves keep gradients\n"
           "Update it under NoGradGuard (it stays a leaf), or make it a Param and write "
           "`w.assign_(w + v)`. PyTorch refuses the += itself.",
           from);
  TD_FAIL(Value,
          "this tensor is the result of {}, and only leaves keep gradients\n"
          "Write grad(loss, x) for a value on the way, or detach().requires_grad_() it before use.",
          from);
}

}  // namespace

Tensor Tensor::grad(SourceLocation loc) const {
  Node* n = node_of(*this);
  if (!n) return Tensor();
  if (!n->slot) {
    if (n->is_leaf() || !requires_grad()) return Tensor();
    try {
      refuse_grad(*n);
    } catch (const Error& e) {
      throw with_place(e, "grad", loc);
    }
  }
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
    return call(op::identity, nullptr, SourceLocation::here(), *this);
  }
  return detached_alias(*this);
}

void backward(const Tensor& loss, const std::vector<Param>& inputs, bool retain_graph,
              SourceLocation loc) {
  try {
    const Tensor g = root_gradient(loss, {}, loc);
    TD_CHECK(loss.requires_grad(), Value,
             "this tensor does not depend on anything that requires a gradient\n"
             "Was it computed under NoGradGuard, or detached?");
    std::vector<GradSlot*> slots;
    for (const Param& p : inputs)
      if (p.defined() && p.requires_grad()) slots.push_back(p.cell()->slot().get());
    TD_CHECK(!slots.empty(), Value,
             "none of the {} parameters requires a gradient\nGive it those that are to be trained.",
             inputs.size());
    run_backward({{&loss, 1}, {&g, 1}, {}, true, retain_graph, false, loc, slots});
  } catch (const Error& e) {
    rethrow_at(e, "backward", loc);
  }
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         GradOptions options, SourceLocation loc) {
  try {
    std::vector<Tensor> grads;
    for (size_t i = 0; i < outputs.size(); ++i)
      grads.push_back(root_gradient(
          outputs[i], i < options.grad_outputs.size() ? options.grad_outputs[i] : Tensor(), loc));
    for (size_t i = 0; i < inputs.size(); ++i)
      TD_CHECK(inputs[i].defined() && inputs[i].requires_grad(), Value,
               "input {} does not require a gradient\nCall requires_grad_() on it before use.", i);
    std::vector<Tensor> g =
        run_backward({outputs, grads, inputs, false, options.retain_graph || options.create_graph,
                      options.create_graph, loc});
    for (size_t i = 0; i < g.size(); ++i)
      TD_CHECK(g[i].defined() || options.allow_unused, Value,
               "input {} is not used by the outputs\nSet allow_unused = true to get an "
               "undefined tensor.",
               i);
    return g;
  } catch (const Error& e) {
    if (!e.op().empty()) throw;
    throw with_place(e, "grad", loc);
  }
}

Tensor grad(const Tensor& output, const Tensor& input, GradOptions options, SourceLocation loc) {
  return grad(std::vector<Tensor>{output}, std::vector<Tensor>{input}, std::move(options), loc)[0];
}

}  // namespace tandem
