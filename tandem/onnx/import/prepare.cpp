// SPDX-License-Identifier: Apache-2.0
// Resolves names to slots, once per model: inputs, initializers, results of nodes, and what a graph
// in an attribute reads from the enclosing graphs.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"

namespace tandem::onnx {
namespace {

struct Preparer {
  const std::map<std::string, int64_t>& opsets;
  const OnnxFunctionTable& functions;

  struct Scope {
    OnnxGraph& g;
    Scope* outer;
  };

  static int add(OnnxGraph& g, const std::string& name) {
    const bool fresh = g.names.emplace(name, g.slots).second;
    TD_CHECK(fresh, Format, "graph '{}': the value '{}' is defined twice", g.name, name);
    return g.slots++;
  }

  static int resolve(Scope& s, const std::string& name) {
    const auto it = s.g.names.find(name);
    if (it != s.g.names.end()) return it->second;
    if (!s.outer) return -1;
    const int outer = resolve(*s.outer, name);
    if (outer < 0) return -1;
    const int slot = s.g.slots++;
    s.g.names.emplace(name, slot);
    s.g.captures.emplace_back(outer, slot);
    return slot;
  }

  void find_runner(OnnxNode& n) const {
    const auto v = opsets.find(n.domain);
    n.version = v == opsets.end() ? 1 : v->second;
    const auto f = functions.find({n.domain, n.op, n.overload});
    if (f != functions.end()) n.function = f->second;
    if (n.function) return;
    n.row = find_onnx_row(n.domain, n.op, n.version);
    if (!n.row && n.domain.empty()) n.direct = find_onnx_op(n.op);
    if (!n.row && n.domain == kOnnxTandem) n.direct = find_op(n.op);
  }

  static void order(OnnxGraph& g) {
    std::vector<int> maker(static_cast<size_t>(g.slots), -1);
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (const int s : g.nodes[i].out)
        if (s >= 0) maker[static_cast<size_t>(s)] = static_cast<int>(i);
    std::vector<int> waits(g.nodes.size(), 0);
    std::vector<std::vector<int>> next(g.nodes.size());
    bool sorted = true;
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (const int s : onnx_reads(g.nodes[i])) {
        const int m = maker[static_cast<size_t>(s)];
        if (m < 0) continue;
        sorted = sorted && m < static_cast<int>(i);
        ++waits[i];
        next[static_cast<size_t>(m)].push_back(static_cast<int>(i));
      }
    if (sorted) return;
    std::vector<int> ready, sequence;
    for (size_t i = g.nodes.size(); i-- > 0;)
      if (waits[i] == 0) ready.push_back(static_cast<int>(i));
    while (!ready.empty()) {
      const int i = ready.back();
      ready.pop_back();
      sequence.push_back(i);
      for (const int j : next[static_cast<size_t>(i)])
        if (--waits[static_cast<size_t>(j)] == 0) ready.push_back(j);
    }
    TD_CHECK(sequence.size() == g.nodes.size(), Format, "graph '{}': its nodes form a cycle",
             g.name);
    std::vector<OnnxNode> nodes;
    for (const int i : sequence) nodes.push_back(std::move(g.nodes[static_cast<size_t>(i)]));
    g.nodes = std::move(nodes);
  }

  static void find_last_uses(OnnxGraph& g) {
    std::vector<int> last(static_cast<size_t>(g.slots), -1);
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (const int s : onnx_reads(g.nodes[i])) last[static_cast<size_t>(s)] = static_cast<int>(i);
    for (size_t i = 0; i < g.nodes.size(); ++i)  // results that nobody reads are dropped at once
      for (const int s : g.nodes[i].out)
        if (s >= 0 && last[static_cast<size_t>(s)] < 0)
          last[static_cast<size_t>(s)] = static_cast<int>(i);
    for (const int s : g.output_slots) last[static_cast<size_t>(s)] = -1;
    for (int s = 0; s < g.slots; ++s)
      if (last[static_cast<size_t>(s)] >= 0)
        g.nodes[static_cast<size_t>(last[static_cast<size_t>(s)])].done.push_back(s);
  }

  void graph(OnnxGraph& g, Scope* outer) {
    Scope scope{g, outer};
    for (const OnnxPort& p : g.inputs) g.input_slots.push_back(add(g, p.name));
    for (auto& [name, value] : g.initializers) {
      const auto it = g.names.find(name);
      const int slot = it != g.names.end() ? it->second : add(g, name);
      g.constants.emplace_back(slot, value);
    }
    for (OnnxNode& n : g.nodes)
      for (const std::string& o : n.outputs) n.out.push_back(o.empty() ? -1 : add(g, o));
    for (OnnxNode& n : g.nodes) {
      find_runner(n);
      n.unread = unread_of(n);
      g.keeps_all |= n.domain == kOnnxTraining && n.op == "Gradient";
      for (const std::string& i : n.inputs) {
        n.in.push_back(i.empty() ? -1 : resolve(scope, i));
        TD_CHECK(i.empty() || n.in.back() >= 0, Format,
                 "node '{}' ({}) reads '{}', which is never defined", n.name, n.op, i);
      }
      for (OnnxAttribute& a : n.attributes)
        for (auto& inner : a.graph_list) graph(*inner, &scope);
    }
    for (const OnnxPort& p : g.outputs) {
      g.output_slots.push_back(resolve(scope, p.name));
      TD_CHECK(g.output_slots.back() >= 0, Format, "the output '{}' of graph '{}' is never defined",
               p.name, g.name);
    }
    order(g);
    if (!g.keeps_all) find_last_uses(g);
  }
};

}  // namespace

std::vector<int> onnx_reads(const OnnxNode& n) {
  std::vector<int> r;
  for (const int s : n.in)
    if (s >= 0) r.push_back(s);
  for (const OnnxAttribute& a : n.attributes)
    for (const auto& g : a.graph_list)
      for (const auto& c : g->captures) r.push_back(c.first);
  return r;
}

OnnxFunctionTable onnx_function_table(const std::vector<OnnxFunction>& functions) {
  OnnxFunctionTable all;
  for (const OnnxFunction& f : functions) all[{f.domain, f.name, f.overload}] = &f;
  return all;
}

void prepare_onnx_graph(OnnxGraph& g, const std::map<std::string, int64_t>& opsets,
                        const OnnxFunctionTable& functions) {
  Preparer{opsets, functions}.graph(g, nullptr);
}

}  // namespace tandem::onnx
