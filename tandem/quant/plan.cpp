// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/plan.h"

#include <fmt/core.h>

#include "tandem/quant/roles.h"

namespace tandem::quant {

Plan::Plan(const Network& net, std::vector<char> quantised, bool outputs, bool dynamic)
    : quantised_(std::move(quantised)), dynamic_(dynamic) {
  const Graph& g = net.graph();
  outputs_.assign(g.outputs.size(), -1);
  for (size_t i = 0; outputs && i < g.outputs.size(); ++i)
    if (g.outputs[i].dtype() == DType::f32)
      outputs_[i] = add(net, {node_of(g.outputs[i])->index,
                              static_cast<uint16_t>(g.outputs[i].impl()->out_index)});
  for (size_t k = g.nodes.size(); k-- > 0;) mark(net, *g.nodes[k]);
  for (Site& s : sites_)
    while (sites_[static_cast<size_t>(s.source)].source != s.source)
      s.source = sites_[static_cast<size_t>(s.source)].source;
}

int Plan::add(const Network& net, ValueId v) {
  const auto [at, is_new] = at_.emplace(v, static_cast<int>(sites_.size()));
  if (!is_new) return at->second;
  const Node& n = *net.graph().nodes[v.node];
  const std::string& scope = scope_path(n.scope);
  sites_.push_back({v, at->second,
                    n.op == &op::input
                        ? "input"
                        : fmt::format("{}{}{}", scope, scope.empty() ? "" : ".", n.op->name)});
  return at->second;
}

int Plan::site_at(const Node& n, size_t operand) const {
  const auto at = reads_.find({n.index, operand});
  return at == reads_.end() ? -1 : at->second;
}

void Plan::mark_operands(const Network& net, const Node& n) {
  for (size_t i = 0; i < n.in.size(); ++i)
    if (n.in[i].present && n.in[i].dtype == DType::f32 && !net.is_known(n.in[i]))
      reads_[{n.index, i}] = add(net, value_of(n.in[i]));
}

// Nodes come from the last to the first, so that all readers of a result have been here.
void Plan::mark(const Network& net, const Node& n) {
  const ValueId y{n.index, 0};
  if (const int layer = net.layer_at(n); layer >= 0) {
    if (quantised_[static_cast<size_t>(layer)] && !dynamic_)
      reads_[{n.index, 0}] = add(net, value_of(n.in[0]));
    return;
  }
  const bool site = at_.count(y), inside = site || region_.count(y);
  if (!inside || n.in.empty() || net.input_scale(y).defined()) return;
  switch (role_of(net, n)) {
    case Role::sums:
      mark_operands(net, n);
      break;
    case Role::passes:
      if (!n.in[0].present || net.is_known(n.in[0])) break;
      if (net.is_folded(n) || !site) {
        region_.insert(value_of(n.in[0]));
        break;
      }
      reads_[{n.index, 0}] = add(net, value_of(n.in[0]));
      sites_[static_cast<size_t>(at_.at(y))].source = reads_[{n.index, 0}];
      break;
    case Role::follows:
      for (const NodeInput& i : n.in)
        if (i.present && !net.is_known(i)) region_.insert(value_of(i));
      break;
    default:
      break;
  }
}

}  // namespace tandem::quant
