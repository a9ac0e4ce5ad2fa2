// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/summary.h"

#include <algorithm>
#include <set>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

const OnnxAttribute* constant_of(const OnnxNode& n) {
  if (n.op != "Constant" || !n.domain.empty() || n.outputs.size() != 1) return nullptr;
  const OnnxAttribute* a = n.find("value");
  if (!a) a = n.find("sparse_value");
  return a && a->tensor.is_tensor() ? a : nullptr;
}

int64_t elements_of(const OnnxValue& v) {
  int64_t n = 1;
  for (const int64_t d : v.shape()) n *= d;
  return n;
}

/// Calls `f(name, value, is_constant)` for each tensor that a graph and those inside hold.
template <class F>
void visit_tensors(const OnnxGraph& g, const F& f) {
  for (const auto& [name, value] : g.initializers)
    if (value.is_tensor()) f(name, value, false);
  for (const OnnxNode& n : g.nodes) {
    if (const OnnxAttribute* a = constant_of(n); a && elements_of(a->tensor) > 1)
      f(n.outputs[0], a->tensor, true);
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) visit_tensors(*inner, f);
  }
}

std::string name_of(const OnnxNode& n) {
  return n.domain.empty() || n.domain == "ai.onnx" ? n.op : n.domain + "." + n.op;
}

void count_nodes(const OnnxGraph& g, OnnxSummary& s) {
  for (const OnnxNode& n : g.nodes) {
    ++s.nodes;
    ++s.ops[name_of(n)];
    if (!n.row && !n.direct && !n.function) s.unknown_ops.push_back(name_of(n));
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) count_nodes(*inner, s);
  }
}

// What no output of the graph depends on; nodes are in order.
void find_unused(const OnnxGraph& g, std::vector<std::string>& unused) {
  std::vector<char> used(static_cast<size_t>(g.slots), 0);
  const auto mark = [&](int slot) { used[static_cast<size_t>(slot)] = 1; };
  const auto is_used = [&](int slot) { return slot >= 0 && used[static_cast<size_t>(slot)]; };
  for (const int s : g.output_slots) mark(s);
  std::vector<std::string> nodes;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const OnnxNode& n = g.nodes[i];
    if (std::any_of(n.out.begin(), n.out.end(), is_used)) {
      for (const int s : onnx_reads(n)) mark(s);
    } else {
      nodes.push_back(fmt::format("node '{}' ({})",
                                  !n.name.empty()     ? n.name
                                  : n.outputs.empty() ? ""
                                                      : n.outputs[0],
                                  n.op));
    }
  }
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (!is_used(g.input_slots[i])) unused.push_back(fmt::format("input '{}'", g.inputs[i].name));
  for (const auto& [name, value] : g.initializers)
    if (!is_used(g.names.at(name))) unused.push_back(fmt::format("initializer '{}'", name));
  unused.insert(unused.end(), nodes.rbegin(), nodes.rend());
}

}  // namespace

OnnxSummary summarize(const OnnxModel& model) {
  OnnxSummary s;
  const auto add = [&](const std::string&, const OnnxValue& v, bool is_constant) {
    const DType dtype = info_of(v.type()).carrier;
    const int64_t n = elements_of(v);
    (is_floating(dtype) ? s.parameters : s.buffers) += n;
    if (is_constant && is_floating(dtype)) s.in_constants += n;
    s.weight_bytes += n * static_cast<int64_t>(size_of(dtype));
  };
  const OnnxModelProto& p = model.proto();
  visit_tensors(p.graph, add);
  count_nodes(p.graph, s);
  for (const OnnxFunction& f : p.functions) {
    visit_tensors(f.body, add);
    count_nodes(f.body, s);
  }
  std::sort(s.unknown_ops.begin(), s.unknown_ops.end());
  s.unknown_ops.erase(std::unique(s.unknown_ops.begin(), s.unknown_ops.end()), s.unknown_ops.end());
  find_unused(p.graph, s.unused);
  return s;
}

StateDict weights_of(const OnnxModel& model) {
  StateDict all;
  const auto add = [&](const std::string& name, const OnnxValue& v, bool) {
    if (v.type() == OnnxType::i64 && v.tensor().dim() <= 1) return;  // sizes and axes of ops
    TD_CHECK(!all.contains(name), Format, "'{}' has two tensors of the name '{}'", model.name(),
             name);
    all[name] = v.tensor();
  };
  visit_tensors(model.proto().graph, add);
  for (const OnnxFunction& f : model.proto().functions) visit_tensors(f.body, add);
  return all;
}

OnnxScores scores_of(const OnnxModel& model, size_t output) {
  const OnnxGraph& g = model.proto().graph;
  int slot = g.output_slots.at(output);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const OnnxNode& n = g.nodes[i];
    if (n.out.empty() || n.out[0] != slot || !n.domain.empty()) continue;
    if (n.op == "Softmax" || n.op == "Sigmoid") return OnnxScores::probabilities;
    if (n.op == "LogSoftmax") return OnnxScores::log_probabilities;
    const bool hands_on = n.op == "Identity" || n.op == "Cast" || n.op == "Reshape" ||
                          n.op == "Flatten" || n.op == "Squeeze" || n.op == "Unsqueeze";
    if (!hands_on || n.in.empty() || n.in[0] < 0) break;
    slot = n.in[0];
  }
  return OnnxScores::unknown;
}

}  // namespace tandem::onnx
