// SPDX-License-Identifier: Apache-2.0
// Keras's recurrent layers and attention, as ONNX's LSTM, GRU, RNN and Attention.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

using io::Json;
using Values = KerasBuilder::Values;

const Json& config_of(const Json* layer) {
  const Json* c = layer ? layer->find("config") : nullptr;
  static const Json nothing;
  return c ? *c : nothing;
}

/// Columns [.., gates * units] as ONNX's rows [gates * units, ..], gate `from[i]` in place i.
Tensor gate_rows(const Tensor& w, const std::vector<int64_t>& from, int64_t units) {
  std::vector<Tensor> rows;
  for (const int64_t g : from) rows.push_back(narrow(w, w.dim() - 1, g * units, units));
  const Tensor all = cat(rows, -1);
  return contiguous(all.dim() == 1 ? all : all.transpose(0, 1));
}

struct CellKind {
  const char *type, *op;
  std::vector<int64_t> gates;  ///< Keras's place of each of ONNX's gates
};

const CellKind& cell_kind(const std::string& type) {
  static const CellKind kinds[] = {
      {"LSTM", "LSTM", {0, 3, 1, 2}}, {"GRU", "GRU", {0, 1, 2}}, {"SimpleRNN", "RNN", {0}}};
  for (const CellKind& k : kinds)
    if (type == k.type) return k;
  TD_FAIL(Unsupported, "a recurrent layer of the class '{}'", type);
}

}  // namespace

KerasBuilder::Steps KerasBuilder::recurrent_steps(const KerasCall& c, bool backwards) {
  const CellKind& kind = cell_kind(c.type);
  const bool gru = c.type == "GRU", reset_after = c.flag("reset_after", true);
  if (c.inputs.size() > 1) lacks(c, "an initial state");
  if (c.text("activation", "tanh") != "tanh" ||
      (c.type != "SimpleRNN" && c.text("recurrent_activation", "sigmoid") != "sigmoid"))
    lacks(c, "an activation other than tanh and sigmoid");
  const int64_t units = c.whole("units", 0), gates = static_cast<int64_t>(kind.gates.size());
  const KerasWeights cell = c.weights.child("cell", "");
  const Tensor w = cell.at(0), r = cell.at(1);
  if (w.dim() != 2 || r.dim() != 2 || units < 1 || w.size(1) != gates * units ||
      r.size(0) != units || r.size(1) != gates * units)
    fail(fmt::format("the layer '{}' has weights {} and {} for {} units", c.name,
                     w.shape().to_string(), r.shape().to_string(), units));
  Values in{onnx(c, "Transpose", {c.in()}, {onnx_ints("perm", {1, 0, 2})}),
            constant(c.name + "/kernel", gate_rows(w, kind.gates, units).unsqueeze(0)),
            constant(c.name + "/recurrent_kernel", gate_rows(r, kind.gates, units).unsqueeze(0))};
  if (c.flag("use_bias", true)) {
    const Tensor b = cell.at(2);
    const bool both = b.dim() == 2;
    if (b.size(-1) != gates * units)
      fail(fmt::format("the layer '{}' has a bias {}", c.name, b.shape().to_string()));
    const Tensor first = gate_rows(both ? b.select(0, 0) : b, kind.gates, units);
    const Tensor second = both ? gate_rows(b.select(0, 1), kind.gates, units) : zeros_like(first);
    in.push_back(constant(c.name + "/bias", cat({first, second}, 0).unsqueeze(0)));
  }
  OnnxAttributes a{onnx_int("hidden_size", units),
                   onnx_text("direction", backwards ? "reverse" : "forward")};
  if (gru) a.push_back(onnx_int("linear_before_reset", reset_after));
  const std::string y = onnx(c, kind.op, std::move(in), std::move(a));
  OnnxNode& n = model_.graph.nodes.back();
  n.outputs.push_back(y + ":h");
  used_.insert(y + ":h");
  if (c.type == "LSTM") {
    n.outputs.push_back(y + ":c");
    used_.insert(y + ":c");
  }
  Steps s;
  s.all =
      onnx(c, "Transpose", {onnx(c, "Squeeze", {y, numbers({1})})}, {onnx_ints("perm", {1, 0, 2})});
  s.last = onnx(c, "Squeeze", {y + ":h", numbers({0})});
  s.states = {s.last};
  if (c.type == "LSTM") s.states.push_back(onnx(c, "Squeeze", {y + ":c", numbers({0})}));
  return s;
}

Values KerasBuilder::recurrent(const KerasCall& c) {
  const bool backwards = c.flag("go_backwards", false);
  const Steps s = recurrent_steps(c, backwards);
  std::string y = s.last;
  if (c.flag("return_sequences", false))  // in the order in which they were computed
    y = backwards ? node(c, "ReverseV2", {s.all, numbers({1})}) : s.all;
  Values out{y};
  if (c.flag("return_state", false)) out.insert(out.end(), s.states.begin(), s.states.end());
  return out;
}

Values KerasBuilder::bidirectional(const KerasCall& c) {
  const Json *forward = c.find("layer"), *backward = c.find("backward_layer");
  if (!backward || backward->is_null()) backward = forward;
  Values parts;
  for (const bool back : {false, true}) {
    const Json& layer = *(back ? backward : forward);
    const Json& config = config_of(&layer);
    std::string name = io::text_of(config.find("name"));
    const std::string prefix = back ? "backward_" : "forward_";
    if (!name.starts_with(prefix))
      name = prefix + (name.starts_with("forward_") ? name.substr(8) : name);
    KerasCall inner{config,
                    c.name + "/" + name,
                    io::text_of(layer.find("class_name")),
                    c.inputs,
                    {},
                    {},
                    {},
                    0,
                    c.weights.child(back ? "backward_layer" : "forward_layer", name)};
    if (inner.flag("return_state", false)) lacks(c, "returning states");
    const Steps s = recurrent_steps(inner, back);
    parts.push_back(inner.flag("return_sequences", false) ? s.all : s.last);
  }
  const std::string mode = c.find("merge_mode") && c.find("merge_mode")->is_null()
                               ? "none"
                               : c.text("merge_mode", "concat");
  if (mode == "none") return parts;
  if (mode == "concat") return {onnx(c, "Concat", parts, {onnx_int("axis", -1)})};
  if (mode == "mul") return {node(c, "Mul", parts)};
  const std::string sum = node(c, "AddV2", parts);
  if (mode == "sum") return {sum};
  if (mode != "ave") lacks(c, fmt::format("merging by '{}'", mode));
  return {node(c, "Mul", {sum, number(0.5)})};
}

// Layers that treat every position alike anyway.
Values KerasBuilder::time_distributed(const KerasCall& c) {
  const Json* layer = c.find("layer");
  const Json& config = config_of(layer);
  const std::string type = layer ? io::text_of(layer->find("class_name")) : "";
  constexpr std::string_view kAlike[] = {"Dense",   "Activation", "Dropout",           "ReLU",
                                         "Softmax", "LeakyReLU",  "LayerNormalization"};
  if (std::find(std::begin(kAlike), std::end(kAlike), type) == std::end(kAlike))
    lacks(c, fmt::format("the layer '{}' for each step", type));
  const std::string name = io::text_of(config.find("name"));
  KerasCall inner{config, c.name + "/" + name,           type, c.inputs, {}, {}, {},
                  0,      c.weights.child("layer", name)};
  return (this->*find_layer(type))(inner);
}

std::string KerasBuilder::projection(const KerasCall& c, const std::string& x,
                                     const KerasWeights& weights, const char* role, bool out) {
  const Tensor w = weights.at(0);
  if (w.dim() != 3) lacks(c, "attention over several axes");
  const Tensor flat = out ? w.reshape({w.size(0) * w.size(1), w.size(2)})
                          : w.reshape({w.size(0), w.size(1) * w.size(2)});
  const std::string y = onnx(c, "MatMul", {x, constant(c.name + "/" + role, flat)});
  if (!c.flag("use_bias", true)) return y;
  return node(c, "AddV2",
              {y, constant(c.name + "/" + role + "_bias", weights.at(1).reshape({-1}))});
}

// Called on the query, the value and, if it is another one, the key.
Values KerasBuilder::attention(const KerasCall& c) {
  std::string query = c.inputs.empty() ? "" : c.inputs[0],
              value = c.inputs.size() > 1 ? c.inputs[1] : "",
              key = c.inputs.size() > 2 ? c.inputs[2] : "";
  for (const auto& [name, v] : c.named) {
    if (name == "query")
      query = v;
    else if (name == "value")
      value = v;
    else if (name == "key")
      key = v;
    else
      lacks(c, fmt::format("the argument '{}'", name));
  }
  if (query.empty() || value.empty()) fail(fmt::format("the layer '{}' has no value", c.name));
  if (key.empty()) key = value;
  const int64_t heads = c.whole("num_heads", 1);
  const auto part = [&](const std::string& x, const char* role) {
    return projection(c, x, c.weights.child(std::string(role) + "_dense", role), role, false);
  };
  const std::string q = part(query, "query"), k = part(key, "key"), v = part(value, "value");
  const std::string y = onnx(c, "Attention", {q, k, v},
                             {onnx_int("q_num_heads", heads), onnx_int("kv_num_heads", heads),
                              onnx_int("is_causal", c.option("use_causal_mask"))});
  return {projection(c, y, c.weights.child("output_dense", "attention_output"), "output", true)};
}

}  // namespace tandem::onnx
