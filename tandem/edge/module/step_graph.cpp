// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "tandem/edge/module/layers_internal.h"

namespace tandem::edge {

StepGraph::StepGraph(TracedModel& model) : m(model) {
  for (ModuleStep& s : m.steps) {
    for (const ValueId v : s.out) maker_[v] = &s;
    for (const StepInput& x : s.in)
      if (x.value != kNoValue) readers_[x.value].push_back(&s);
  }
}
const Weight* StepGraph::weight(const ModuleStep& s, size_t input) const {
  if (input >= s.in.size() || s.in[input].value == kNoValue) return nullptr;
  const int w = m.values[static_cast<size_t>(s.in[input].value)].weight;
  return w < 0 ? nullptr : &m.weights[static_cast<size_t>(w)];
}
ModuleStep* StepGraph::maker(ValueId v) const {
  const auto at = maker_.find(v);
  return at == maker_.end() ? nullptr : at->second;
}
const std::vector<ModuleStep*>& StepGraph::readers(ValueId v) const {
  static const std::vector<ModuleStep*> none;
  const auto at = readers_.find(v);
  return at == readers_.end() ? none : at->second;
}
ModuleStep* StepGraph::only_reader(ValueId v) const {
  const auto& all = readers(v);
  const bool last = std::find(m.outputs.begin(), m.outputs.end(), v) != m.outputs.end();
  return all.size() == 1 && !last ? all[0] : nullptr;
}
bool StepGraph::is_op(const ModuleStep* s, const char* row) const {
  return s && s->node && std::string_view(s->node->op->name) == row;
}

}  // namespace tandem::edge
