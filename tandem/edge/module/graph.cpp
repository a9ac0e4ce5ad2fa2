// SPDX-License-Identifier: Apache-2.0
// From a model to its traced ops, with dead ones left out and its weights by name.
#include <cctype>
#include <cstring>
#include <unordered_map>

#include "tandem/compile/run/executable.h"
#include "tandem/edge/module/steps_internal.h"
#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/stored.h"

namespace tandem::edge {
namespace {

class TraceReader {
 public:
  TraceReader(TracedModel& m, const ModuleOptions& o) : m_(m), o_(o) {}

  void read() {
    const Graph& g = *m_.graph;
    for (const Graph::CellUse& u : g.cells)
      TD_CHECK(
          !u.exit.defined(), Unsupported,
          "the model changes its own '{}' when it runs, the source keeps no such state\nPut it "
          "into evaluation mode, or return the value as an output.",
          u.cell->name);
    TD_CHECK(g.grads.empty(), Unsupported, "the model reads gradients: the source has its inputs");
    first_.resize(g.nodes.size());
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      first_[i] = static_cast<ValueId>(m_.values.size());
      for (const NodeOutput& y : g.nodes[i]->out)
        m_.values.push_back({Spec(y.dtype, y.shape, y.device)});
    }
    for (const Graph::CellUse& u : g.cells)
      if (u.entry.defined())
        hold(value_of(u.entry), u.cell->name, Executable::look(*u.cell).first,
             u.cell->requires_grad());
    for (const Graph::Capture& c : g.captures) hold(value_of(c.inner), "", c.outer, false);
    for (const Tensor& x : g.inputs) m_.inputs.push_back(value_of(x));
    for (const Tensor& y : g.outputs) m_.outputs.push_back(value_of(y));
    find_live();
    for (const Ref<Node>& n : g.nodes)
      if (live_[n->index]) add(*n);
  }

 private:
  ValueId value_of(const Tensor& t) const {
    const Node* n = node_of(t);
    return first_.at(n->index) + static_cast<ValueId>(t.impl()->out_index);
  }

  void hold(ValueId v, std::string name, Tensor value, bool trainable) {
    int& w = m_.values[static_cast<size_t>(v)].weight;
    for (size_t i = 0; i < m_.weights.size(); ++i)
      if (m_.weights[i].value.impl()->data == value.impl()->data && m_.weights[i].path == name &&
          m_.weights[i].value.shape() == value.shape()) {
        w = static_cast<int>(i);
        return;
      }
    w = static_cast<int>(m_.weights.size());
    m_.weights.push_back({std::move(name), std::move(value), trainable});
  }

  void find_live() {
    const Graph& g = *m_.graph;
    live_.assign(g.nodes.size(), false);
    for (const Tensor& y : g.outputs) live_[node_of(y)->index] = true;
    for (size_t i = g.nodes.size(); i-- > 0;) {
      const Node& n = *g.nodes[i];
      if (!live_[i]) continue;
      for (const NodeInput& x : n.in)
        if (x.present && x.value.defined()) live_[node_of(x.value)->index] = true;
    }
  }

  // The name that the file has for a constant.
  std::string name_of(const Tensor& t) const {
    for (const auto& [name, known] : o_.names)
      if (known.defined() && known.impl()->data == t.impl()->data && known.shape() == t.shape())
        return name;
    return "";
  }

  void add(const Node& n) {
    if (n.op == &op::input || n.op == &op::cell_read || n.op == &op::capture) return;
    const ValueId y = first_[n.index];
    if (n.op == &op::constant) {
      const Tensor value = constant_value(*static_cast<const ConstantAttrs*>(n.attrs.get()));
      return hold(y, name_of(value), value, is_floating(value.dtype()));
    }
    ModuleStep s;
    s.node = &n;
    s.path = scope_path(n.scope);
    // A module that lies in no other is named by its type.
    if (s.path.find('.') == s.path.npos && !s.path.empty() &&
        std::isupper(static_cast<unsigned char>(s.path[0])))
      s.path.clear();
    for (const NodeInput& x : n.in)
      s.in.push_back({x.present ? value_of(x.value) : kNoValue, x.is_scalar, x.scalar});
    if (n.op->family == Family::pointwise && s.in.size() == 2) inline_number(s);
    for (size_t i = 0; i < n.out.size(); ++i) s.out.push_back(y + static_cast<ValueId>(i));
    m_.steps.push_back(std::move(s));
  }

  // A constant of no dimensions beside a tensor of its category is a number in the text.
  void inline_number(ModuleStep& s) const {
    for (size_t i = 0; i < 2; ++i) {
      StepInput &x = s.in[i], &other = s.in[1 - i];
      if (x.value == kNoValue || other.value == kNoValue) continue;
      const ModuleValue &a = m_.values[static_cast<size_t>(x.value)],
                        &b = m_.values[static_cast<size_t>(other.value)];
      if (a.weight < 0 || a.spec.rank() != 0 || b.weight >= 0 || a.spec.dtype != b.spec.dtype ||
          size_of(a.spec.dtype) < 4)
        continue;
      const Tensor& value = m_.weights[static_cast<size_t>(a.weight)].value;
      x = {kNoValue, true,
           is_floating(value.dtype()) ? Scalar(value.item<double>())
                                      : Scalar(value.item<int64_t>())};
      return;
    }
  }

  TracedModel& m_;
  const ModuleOptions& o_;
  std::vector<ValueId> first_;  // of a node's outputs
  std::vector<bool> live_;
};

}  // namespace

void append(Text& t, const Text& more) { t.insert(t.end(), more.begin(), more.end()); }

std::string parent_path(const std::string& path) {
  const size_t point = path.rfind('.');
  return point == path.npos ? "" : path.substr(0, point);
}
std::string last_part(const std::string& path) {
  const size_t point = path.rfind('.');
  return point == path.npos ? path : path.substr(point + 1);
}
bool is_below(const std::string& path, const std::string& ancestor) {
  return ancestor.empty() || path == ancestor || path.starts_with(ancestor + ".");
}

std::vector<ValueId> computed_inputs(const TracedModel& m, const ModuleStep& s) {
  std::vector<ValueId> out;
  for (const StepInput& x : s.in)
    if (x.value != kNoValue && m.values[static_cast<size_t>(x.value)].weight < 0)
      out.push_back(x.value);
  return out;
}

TracedModel trace_model(EdgeForward forward, std::span<const EdgePort> inputs,
                        const ModuleOptions& options) {
  NoGradGuard no_grad;
  const DeviceGuard constants_on_host(cpu);
  std::vector<Spec> specs;
  for (const EdgePort& p : inputs) specs.push_back(p.spec);
  TracedModel m;
  m.graph = trace(forward, specs, Captures::refuse);
  TraceReader(m, options).read();
  for (const KnownModule& k : options.modules) {
    m.types[k.path] = k.type;
    if (!k.arguments.empty()) m.arguments[k.path] = k.arguments;
  }
  return m;
}

}  // namespace tandem::edge
