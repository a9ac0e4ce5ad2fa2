// SPDX-License-Identifier: Apache-2.0
// ONNX's training ops: optimizer updates, and Gradient, which differentiates the preceding nodes of
// its own graph.
#include <cmath>

#include "tandem/grad/autograd.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Inputs are R, T, then `groups` lists of n tensors; outputs are `groups - 1` lists (no gradient).
template <class Update>
void update_all(OnnxCall& c, size_t groups, Update update) {
  TD_CHECK(c.in.size() > 2 && (c.in.size() - 2) % groups == 0, Value, "takes 2 + n * {} inputs",
           groups);
  const size_t n = (c.in.size() - 2) / groups;
  for (size_t i = 0; i < n; ++i) {
    std::vector<Tensor> in;
    for (size_t g = 0; g < groups; ++g) in.push_back(c.x(2 + g * n + i));
    const std::vector<Tensor> out = update(in);
    for (size_t g = 0; g < out.size(); ++g) c.set(g * n + i, out[g].to(in[0].dtype()));
  }
}

void adagrad(OnnxCall& c) {
  const double rate = c.number(0) / (1 + c.number(1) * c.attr_float("decay_factor", 0));
  const double norm = c.attr_float("norm_coefficient", 0), eps = c.attr_float("epsilon", 0);
  update_all(c, 3, [&](const std::vector<Tensor>& s) -> std::vector<Tensor> {
    const Tensor g = s[0] * norm + s[1], h = s[2] + g * g;
    return {s[0] - rate * g / (sqrt(h) + eps), h};
  });
}

void adam(OnnxCall& c) {
  const double t = c.number(1), alpha = c.attr_float("alpha", 0.9),
               beta = c.attr_float("beta", 0.999), norm = c.attr_float("norm_coefficient", 0),
               post = c.attr_float("norm_coefficient_post", 0), eps = c.attr_float("epsilon", 0);
  double rate = c.number(0);
  if (t > 0) rate *= std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t));
  update_all(c, 4, [&](const std::vector<Tensor>& s) -> std::vector<Tensor> {
    const Tensor g = s[0] * norm + s[1];
    const Tensor v = s[2] * alpha + g * (1 - alpha), h = s[3] * beta + g * g * (1 - beta);
    return {(s[0] - rate * (v / (sqrt(h) + eps))) * (1 - post), v, h};
  });
}

void momentum(OnnxCall& c) {
  const double rate = c.number(0), alpha = c.attr_float("alpha", 0),
               given = c.attr_float("beta", 0), norm = c.attr_float("norm_coefficient", 0);
  const double beta = c.number(1) > 0 ? given : 1;
  const bool nesterov = c.attr_choice("mode", "standard", {"standard", "nesterov"}) == "nesterov";
  update_all(c, 3, [&](const std::vector<Tensor>& s) -> std::vector<Tensor> {
    const Tensor g = s[0] * norm + s[1], v = s[2] * alpha + g * beta;
    return {s[0] - rate * (nesterov ? g + v * alpha : v), v};
  });
}

// Reruns the nodes between xs and y on leaves that require gradients.
void gradient(OnnxCall& c) {
  const std::vector<std::string> xs = c.attr_texts("xs"), zs = c.attr_texts("zs");
  const OnnxGraph& g = c.frame().graph;
  auto slot_of = [&](const std::string& name) {
    const auto it = g.names.find(name);
    TD_CHECK(it != g.names.end(), Format, "there is no value '{}' in this graph", name);
    return static_cast<size_t>(it->second);
  };
  TD_CHECK(c.in.size() == xs.size() + zs.size(), Value, "expected {} inputs, got {}",
           xs.size() + zs.size(), c.in.size());
  const EnableGradGuard on;
  OnnxFrame again{g, c.frame().bindings, c.frame().depth + 1, c.frame().slots};
  std::vector<bool> changed(again.slots.size(), false);
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const size_t slot = slot_of(i < xs.size() ? xs[i] : zs[i - xs.size()]);
    again.slots[slot] = c.in[i];
    changed[slot] = true;
    if (i >= xs.size()) continue;
    leaves.push_back(c.x(i).detach().requires_grad_());
    again.slots[slot] = OnnxValue(leaves.back(), c.type(i));
  }
  const size_t y = slot_of(c.attr_text("y"));
  for (const OnnxNode& n : g.nodes) {
    if (&n == &c.node() || changed[y]) break;
    bool reads = false;
    for (const int s : n.in) reads |= s >= 0 && changed[static_cast<size_t>(s)];
    if (!reads) continue;
    run_onnx_node(again, n);
    for (const int s : n.out)
      if (s >= 0) changed[static_cast<size_t>(s)] = true;
  }
  const Tensor result = again.slots[y].tensor();
  const std::vector<Tensor> grads =
      grad({result}, leaves, {.grad_outputs = {ones_like(result)}, .allow_unused = true});
  for (size_t i = 0; i < grads.size(); ++i)
    c.set(i, grads[i].defined() ? grads[i] : zeros_like(leaves[i]));
}

}  // namespace

std::span<const OnnxRow> onnx_training_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTraining,
       "Adagrad",
       1,
       0,
       adagrad,
       {kOnnxAny, kOnnxAny, "decay_factor epsilon norm_coefficient"}},
      {kOnnxTraining,
       "Adam",
       1,
       0,
       adam,
       {kOnnxAny, kOnnxAny, "alpha beta epsilon norm_coefficient norm_coefficient_post"}},
      {kOnnxTraining,
       "Momentum",
       1,
       0,
       momentum,
       {kOnnxAny, kOnnxAny, "alpha beta mode norm_coefficient"}},
      {kOnnxTraining, "Gradient", 1, 0, gradient, {kOnnxAny, kOnnxAny, "xs y zs"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
