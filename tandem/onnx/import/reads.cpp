// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tandem/graph/trace.h"
#include "tandem/onnx/import/reads_internal.h"

namespace tandem::onnx {
namespace {

// Inputs that are settings have few elements: sizes, axes, pads, limits.
constexpr int64_t kMostWholeNumbers = 64, kMostNumbers = 16;

thread_local ReadProbe* t_probe = nullptr;

bool is_setting(const Tensor& input) {
  return !input.shape().is_symbolic() &&
         input.numel() <= (is_floating(input.dtype()) ? kMostNumbers : kMostWholeNumbers);
}

// What a placeholder of a nested trace stands for; nullptr where that is not a captured value.
const Tensor* captured_by(const Node& placeholder) {
  for (const Trace* t = context().trace; t; t = t->parent) {
    if (t->graph.get() != placeholder.graph) continue;
    for (const Graph::Capture& c : t->graph->captures)
      if (node_of(c.inner) == &placeholder) return &c.outer;
  }
  return nullptr;
}

}  // namespace

bool is_hidden(const Tensor& t) { return t.is_symbolic() && values_hidden(); }

ReadProbe::ReadProbe(std::span<const Tensor> inputs, std::set<size_t>& wanted)
    : tensors_(inputs), wanted_(wanted), outer_(std::exchange(t_probe, this)) {
  for (size_t i = 0; i < inputs.size(); ++i) inputs_.emplace(node_of(inputs[i]), i);
}
ReadProbe::~ReadProbe() { t_probe = outer_; }
ReadProbe* ReadProbe::current() { return t_probe; }

// The inputs that `t` follows from; nothing where it follows from more than settings among them.
std::optional<std::set<size_t>> ReadProbe::roots(const Tensor& t) const {
  std::set<size_t> found;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open{node_of(t)};
  while (!open.empty()) {
    const Node* n = open.back();
    open.pop_back();
    if (!n || !n->op) return std::nullopt;
    if (!seen.insert(n).second) continue;
    if (const auto at = inputs_.find(n); at != inputs_.end()) {
      if (!is_setting(tensors_[at->second])) return std::nullopt;
      found.insert(at->second);
    } else if (n->op == &op::capture) {
      const Tensor* outer = captured_by(*n);
      if (!outer) return std::nullopt;
      if (outer->is_symbolic()) open.push_back(node_of(*outer));
    } else if (n->op == &op::input || n->op == &op::cell_read || n->op == &op::grad_read ||
               n->op->has(kRandom)) {
      return std::nullopt;
    } else {
      for (const NodeInput& in : n->in)
        if (in.present) open.push_back(in.from.get());
    }
  }
  return found;
}

void ReadProbe::fails(const Tensor& t, bool is_condition) {
  if (is_condition && !is_choice(t, kMostWholeNumbers)) return;
  if (const auto found = roots(t)) wanted_.insert(found->begin(), found->end());
}

bool ReadProbe::is_choice(const Tensor& t, int64_t most) const {
  const auto found = roots(t);
  return found && std::all_of(found->begin(), found->end(), [&](size_t i) {
           return !is_floating(tensors_[i].dtype()) && tensors_[i].numel() <= most;
         });
}

}  // namespace tandem::onnx
