// SPDX-License-Identifier: Apache-2.0
// Makes an ONNX file trainable: exporters write models for inference, with their weights as
// initializers. Here those become inputs, and nodes that behave differently in training do so.
#include <algorithm>
#include <set>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/view/create.h"

namespace tandem::onnx {
namespace {

// Whether input k of the node is a setting.
bool is_setting(const OnnxModelProto& model, const OnnxNode& n, size_t input) {
  const auto opset = model.opsets.find(n.domain);
  const OnnxRow* row =
      find_onnx_row(n.domain, n.op, opset == model.opsets.end() ? 1 : opset->second);
  return row && static_cast<int>(input) >= row->settings_from;
}

bool can_learn(const OnnxValue& v) {
  return v.is_tensor() && is_floating(v.tensor().dtype()) && v.tensor().numel() > 1;
}

// Large constants of nodes are weights that an exporter did not write as initializers.
void take_constants(OnnxGraph& g) {
  std::erase_if(g.nodes, [&](const OnnxNode& n) {
    const OnnxAttribute* value = n.op == "Constant" ? n.find("value") : nullptr;
    const bool weight = value && n.outputs.size() == 1 && value->kind == OnnxAttribute::t &&
                        can_learn(value->tensor);
    if (weight) g.initializers.emplace_back(n.outputs[0], value->tensor);
    return weight;
  });
}

void train(OnnxGraph& g, std::vector<std::pair<std::string, OnnxValue>>& extra, bool outermost) {
  for (OnnxNode& n : g.nodes) {
    if (n.op == "BatchNormalization") {
      std::erase_if(n.attributes, [](const OnnxAttribute& a) { return a.name == "training_mode"; });
      OnnxAttribute& a = n.attributes.emplace_back();
      a.name = "training_mode";
      a.kind = OnnxAttribute::i;
      a.int_value = 1;
    }
    if (n.op == "Dropout" && outermost && !n.outputs.empty()) {
      // From opset 12 on: data, ratio?, training_mode?
      n.inputs.resize(3);
      n.inputs[2] = "training of " + n.outputs[0];
      extra.emplace_back(n.inputs[2], OnnxValue(ones({}, DType::b8)));
    }
    for (OnnxAttribute& a : n.attributes)
      for (auto& inner : a.graph_list) train(*inner, extra, false);
  }
}

}  // namespace

std::vector<std::pair<std::string, OnnxValue>> make_trainable(OnnxModelProto& model) {
  OnnxGraph& g = model.graph;
  take_constants(g);
  const auto opset = model.opsets.find("");
  std::vector<std::pair<std::string, OnnxValue>> flags;
  train(g, flags, opset != model.opsets.end() && opset->second >= 12);
  // A value used as a setting by some node is not a weight.
  std::set<std::string> read, settings;
  for (const OnnxNode& n : g.nodes)
    for (size_t i = 0; i < n.inputs.size(); ++i)
      (is_setting(model, n, i) ? settings : read).insert(n.inputs[i]);
  std::vector<std::pair<std::string, OnnxValue>> weights;
  std::vector<std::pair<std::string, OnnxValue>> rest;
  for (auto& entry : g.initializers) {
    const bool weight =
        can_learn(entry.second) && read.count(entry.first) && !settings.count(entry.first);
    (weight ? weights : rest).push_back(std::move(entry));
  }
  g.initializers = std::move(rest);
  for (auto& f : flags) g.initializers.push_back(std::move(f));
  // Old files list their initializers as inputs, too.
  std::set<std::string_view> names;
  for (const auto& [name, value] : weights) names.insert(name);
  std::erase_if(g.inputs, [&](const OnnxPort& p) { return names.count(p.name) > 0; });
  for (const auto& [name, value] : weights) {
    OnnxPort port;
    port.name = name;
    port.type.kind = OnnxTypeSpec::Kind::tensor;
    port.type.elem = value.type();
    port.type.has_shape = true;
    for (int d = 0; d < value.tensor().dim(); ++d) port.type.dims.push_back(value.tensor().size(d));
    g.inputs.push_back(std::move(port));
  }
  return weights;
}

}  // namespace tandem::onnx
