// SPDX-License-Identifier: Apache-2.0
// A Graph as a GraphDef (tensorflow/core/framework/graph.proto, node_def.proto, attr_value.proto).
// Paths of layers become paths of names, which TensorBoard folds into boxes.
#include <algorithm>
#include <map>
#include <set>

#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/runs/event_file.h"

namespace tandem::runs {
namespace {

using Message = io::ProtoWriter;

void attribute(Message& node, const std::string& key, const Message& value) {
  Message entry;
  entry.add_bytes(1, key);
  entry.add_message(2, value);
  node.add_message(5, entry);
}

Message text_value(const std::string& text) {
  Message v;
  v.add_bytes(2, text);
  return v;
}

// Symbols of dimensions count as unknown.
Message shape_message(const Shape& s) {
  Message shape;
  for (int d = 0; d < s.rank(); ++d) {
    Message size;
    size.add_int(1, s[d].is_symbolic() ? -1 : s.data()[d]);
    shape.add_message(2, size);
  }
  return shape;
}

// "conv1.weight" as "conv1/weight".
std::string as_path(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

/// Names that stand once each: a second "conv/add" is "conv/add_1".
class Names {
 public:
  std::string once(const std::string& wanted) {
    std::string name = wanted;
    for (int64_t& k = next_[wanted]; !used_.insert(name).second;)
      name = wanted + "_" + std::to_string(++k);
    return name;
  }

 private:
  std::set<std::string> used_;
  std::map<std::string, int64_t> next_;
};

}  // namespace

std::string graph_def(const Graph& g, const nn::Module* model) {
  std::map<const Cell*, std::string> cells;
  if (model) {
    for (const auto& [name, p] : model->named_parameters()) cells.emplace(p.cell().get(), name);
    for (const auto& [name, b] : model->named_buffers())
      if (b.defined()) cells.emplace(b.cell().get(), name);
  }
  Names names;
  std::map<const Node*, std::string> placeholders, name_of;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    placeholders[node_of(g.inputs[i])] =
        g.inputs.size() == 1 ? "input" : fmt::format("input_{}", i);
  for (const Graph::CellUse& use : g.cells) {
    if (!use.entry.defined()) continue;
    const auto it = cells.find(use.cell.get());
    placeholders[node_of(use.entry)] = it == cells.end() ? "state" : as_path(it->second);
  }
  const auto reference = [&](const Node* node, uint32_t index) {
    const auto it = name_of.find(node);
    if (it == name_of.end()) return std::string();
    return index == 0 ? it->second : fmt::format("{}:{}", it->second, index);
  };
  Message def;
  for (const Ref<Node>& n : g.nodes) {
    const auto given = placeholders.find(n.get());
    const std::string layer = as_path(scope_path(n->scope));
    std::string name = given != placeholders.end() ? given->second : std::string(n->op->name);
    if (given == placeholders.end() && !layer.empty()) name = layer + "/" + name;
    name = names.once(name);
    name_of[n.get()] = name;
    Message node, dtype, shapes, list;
    node.add_bytes(1, name);
    node.add_bytes(2, given != placeholders.end() && n->op == &op::input ? "Placeholder"
                      : given != placeholders.end() && n->op == &op::cell_read
                          ? "Variable"
                          : std::string(n->op->name));
    for (size_t i = 0; i < n->in.size(); ++i) {
      const NodeInput& in = n->in[i];
      if (std::string from = reference(in.from.get(), in.from_index); !from.empty())
        node.add_bytes(3, from);
      else if (in.is_scalar)
        attribute(node, fmt::format("input_{}", i),
                  text_value(in.scalar.kind == 2 ? fmt::format("{}", in.scalar.f)
                                                 : fmt::format("{}", in.scalar.i)));
    }
    for (const NodeOutput& y : n->out) list.add_message(7, shape_message(y.shape));
    shapes.add_message(1, list);
    attribute(node, "_output_shapes", shapes);
    if (!n->out.empty()) {
      dtype.add_varint(6, static_cast<uint64_t>(io::tf_type_of(n->out[0].dtype).number));
      attribute(node, "dtype", dtype);
    }
    if (n->attrs.get())
      attribute(node, "attributes", text_value(print_attrs(n->attrs.type(), n->attrs.get())));
    def.add_message(1, node);
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const Node* from = node_of(g.outputs[i]);
    if (!from) continue;
    Message node;
    node.add_bytes(1, names.once(g.outputs.size() == 1 ? "output" : fmt::format("output_{}", i)));
    node.add_bytes(2, "Identity");
    node.add_bytes(3, reference(from, g.outputs[i].impl()->out_index));
    def.add_message(1, node);
  }
  Message versions;
  versions.add_varint(1, 22);
  def.add_message(4, versions);
  return def.str();
}

void EventFile::graph(const Graph& graph, const nn::Module* model) {
  Message fields;
  fields.add_bytes(4, graph_def(graph, model));
  event(fields.str(), 0);
}

}  // namespace tandem::runs
