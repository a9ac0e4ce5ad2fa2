// SPDX-License-Identifier: Apache-2.0
// Keras's recurrent layers as ONNX's LSTM, GRU and RNN. With a mask, the steps that count are moved
// to the front, and the results back to their places.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

using io::Json;
using Values = KerasBuilder::Values;

const Json& config_of(const Json* layer) {
  static const Json nothing;
  return keras_member(layer ? *layer : nothing, "config");
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
    if (type == k.type || type == std::string(k.type) + "Cell") return k;
  TD_FAIL(Unsupported, "a recurrent layer of the class '{}'", type);
}

}  // namespace

// ONNX's names of the activations of gates and of the state, or none for the usual ones.
OnnxAttributes KerasBuilder::cell_activations(const KerasCall& cell, size_t gates) {
  struct Name {
    const char *keras, *onnx;
    float alpha, beta;
  };
  static constexpr Name kNames[] = {
      {"tanh", "Tanh", 0, 0},         {"sigmoid", "Sigmoid", 0, 0},
      {"relu", "Relu", 0, 0},         {"linear", "Affine", 1, 0},
      {"elu", "Elu", 1, 0},           {"softsign", "Softsign", 0, 0},
      {"softplus", "Softplus", 0, 0}, {"hard_sigmoid", "HardSigmoid", 1.0f / 6, 0.5f}};
  OnnxAttribute names, alpha = onnx_ints("activation_alpha", {}),
                       beta = onnx_ints("activation_beta", {});
  names.name = "activations";
  names.kind = OnnxAttribute::strings;
  alpha.kind = beta.kind = OnnxAttribute::floats;
  // RNN has the state's alone; GRU one more for its gates, LSTM another for what it puts out.
  const size_t n = gates == 1 ? 1 : gates == 3 ? 2 : 3;
  for (size_t i = 0; i < n; ++i) {
    const bool of_gates = n > 1 && i == 0;
    const std::string wanted =
        of_gates ? cell.text("recurrent_activation", "sigmoid") : cell.text("activation", "tanh");
    const Name* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Name& k) { return wanted == k.keras; });
    if (found == std::end(kNames)) lacks(cell, fmt::format("the activation '{}'", wanted));
    const bool older = keras2_ && wanted == "hard_sigmoid";
    names.text_list.push_back(found->onnx);
    alpha.float_list.push_back(older ? 0.2f : found->alpha);
    beta.float_list.push_back(found->beta);
  }
  return {names, alpha, beta};
}

KerasBuilder::Steps KerasBuilder::recurrent_steps(const KerasCall& c, const KerasCall& cell,
                                                  const std::string& x, const Values& initial,
                                                  bool backwards) {
  const CellKind& kind = cell_kind(cell.type);
  const bool gru = kind.gates.size() == 3, lstm = kind.gates.size() == 4;
  const int64_t units = cell.whole("units", 0), gates = static_cast<int64_t>(kind.gates.size());
  const Tensor w = cell.weights.at(0), r = cell.weights.at(1);
  if (w.dim() != 2 || r.dim() != 2 || units < 1 || w.size(1) != gates * units ||
      r.size(0) != units || r.size(1) != gates * units)
    fail(fmt::format("the layer '{}' has weights {} and {} for {} units", c.name,
                     w.shape().to_string(), r.shape().to_string(), units));
  // With a mask: the steps in their order of use, then those that do not count.
  const std::string mask = mask_of(c);
  const OnnxAttributes order{onnx_int("backwards", backwards)};
  std::string steps = x, lengths;
  if (!mask.empty()) {
    steps = node(c, "CompactSteps", {x, mask}, order, kOnnxKeras);
    if (lstm && c.flag("return_state", false))
      lengths = onnx(c, "ReduceSum", {onnx(c, "Cast", {mask}, {onnx_int("to", 6)}), numbers({1})},
                     {onnx_int("keepdims", 0)});
  }
  Values in{onnx(c, "Transpose", {steps}, {onnx_ints("perm", {1, 0, 2})}),
            constant(c.name + "/kernel", gate_rows(w, kind.gates, units).unsqueeze(0)),
            constant(c.name + "/recurrent_kernel", gate_rows(r, kind.gates, units).unsqueeze(0)),
            "", lengths};
  if (cell.flag("use_bias", true)) {
    const Tensor b = cell.weights.at(2);
    const bool both = b.dim() == 2;
    if (b.size(-1) != gates * units)
      fail(fmt::format("the layer '{}' has a bias {}", c.name, b.shape().to_string()));
    const Tensor first = gate_rows(both ? b.select(0, 0) : b, kind.gates, units);
    const Tensor second = both ? gate_rows(b.select(0, 1), kind.gates, units) : zeros_like(first);
    in[3] = constant(c.name + "/bias", cat({first, second}, 0).unsqueeze(0));
  }
  for (const std::string& s : initial) in.push_back(onnx(c, "Unsqueeze", {s, numbers({0})}));
  OnnxAttributes a = cell_activations(cell, kind.gates.size());
  a.push_back(onnx_int("hidden_size", units));
  a.push_back(onnx_text("direction", backwards && mask.empty() ? "reverse" : "forward"));
  if (gru) a.push_back(onnx_int("linear_before_reset", cell.flag("reset_after", true)));
  const std::string y = onnx(c, kind.op, std::move(in), std::move(a));
  for (const char* state : {":h", ":c"}) {
    if (state[1] == 'c' && !lstm) break;
    model_.graph.nodes[model_.graph.nodes.size() - 1].outputs.push_back(y + state);
    used_.insert(y + state);
  }
  Steps s;
  s.all =
      onnx(c, "Transpose", {onnx(c, "Squeeze", {y, numbers({1})})}, {onnx_ints("perm", {1, 0, 2})});
  s.last = onnx(c, "Squeeze", {y + ":h", numbers({0})});
  s.states = {s.last};
  if (lstm) s.states.push_back(onnx(c, "Squeeze", {y + ":c", numbers({0})}));
  if (mask.empty()) return s;
  Values spread{s.all, mask};
  if (!initial.empty()) spread.push_back(initial[0]);
  const std::string state = node(c, "LastStep", spread, order, kOnnxKeras);
  if (lengths.empty()) s.states[0] = state;
  // What a step that does not count puts out is the last output before it, which at first is none.
  const bool zero = c.flag("zero_output_for_mask", false);
  s.all = node(c, "SpreadSteps", {s.all, mask},
               {onnx_int("backwards", backwards), onnx_int("zero", zero)}, kOnnxKeras);
  s.last = onnx(c, "Gather", {s.all, numbers({backwards ? 0 : -1})}, {onnx_int("axis", 1)});
  s.last = onnx(c, "Squeeze", {s.last, numbers({1})});
  return s;
}

KerasBuilder::Values KerasBuilder::initial_states(const KerasCall& c) {
  Values states(c.inputs.size() > 1 ? c.inputs.begin() + 1 : c.inputs.end(), c.inputs.end());
  if (const std::string one = named_value(c, "initial_state"); !one.empty()) states.push_back(one);
  for (int i = 0;; ++i) {
    const std::string s = named_value(c, "initial_state", i);
    if (s.empty()) return states;
    states.push_back(s);
  }
}

/// LSTM, GRU, SimpleRNN, or RNN with one cell or several of them in turn.
KerasBuilder::Steps KerasBuilder::cell_steps(const KerasCall& c, bool backwards) {
  const Values initial = initial_states(c);
  const KerasWeights weights = c.weights.child("cell", "");
  if (c.type != "RNN") {
    const KerasCall cell{c.config, c.name, c.type, {}, {}, {}, {}, 0, weights};
    return recurrent_steps(c, cell, c.in(), initial, backwards);
  }
  const Json* outer = c.find("cell");
  const Json& config = config_of(outer);
  const bool stacked = outer && io::text_of(outer->find("class_name")) == "StackedRNNCells";
  std::vector<const Json*> cells;
  if (stacked && config.find("cells") && config.find("cells")->as_array())
    for (const Json& j : *config.find("cells")->as_array()) cells.push_back(&j);
  else
    cells.push_back(outer);
  if (stacked && (!initial.empty() || !mask_of(c).empty()))
    lacks(c, "a state or a mask of several cells");
  std::map<std::string, int> counts;
  Steps out;
  Values states;
  std::string x = c.in();
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string type = cells[i] ? io::text_of(cells[i]->find("class_name")) : "";
    const std::string name = io::text_of(config_of(cells[i]).find("name"));
    std::string group = keras_snake_case(type);
    if (const int n = counts[group]++; n > 0) group = fmt::format("{}_{}", group, n);
    const KerasCall cell{config_of(cells[i]),
                         c.name + "/" + name,
                         type,
                         {},
                         {},
                         {},
                         {},
                         0,
                         stacked ? weights.child("cells", "").child(group, name) : weights};
    out = recurrent_steps(c, cell, x, initial, backwards);
    // A cell that runs backwards gives its steps in the order of the input, as the next one wants.
    x = out.all;
    states.insert(states.end(), out.states.begin(), out.states.end());
  }
  out.states = states;
  return out;
}

Values KerasBuilder::recurrent_outputs(const KerasCall& c, const Steps& s, bool backwards) {
  std::string y = s.last;
  if (c.flag("return_sequences", false)) {  // in the order in which they were computed
    const std::string mask = mask_of(c);
    const auto turned = [&](const std::string& v) {
      return backwards ? node(c, "ReverseV2", {v, numbers({1})}) : v;
    };
    y = turned(s.all);
    if (!mask.empty()) masks_[y] = mask;
  }
  Values out{y};
  if (c.flag("return_state", false)) out.insert(out.end(), s.states.begin(), s.states.end());
  return out;
}

Values KerasBuilder::recurrent(const KerasCall& c) {
  const bool backwards = c.flag("go_backwards", false);
  return recurrent_outputs(c, cell_steps(c, backwards), backwards);
}

// The steps are run one after another by the row "ConvLSTM".
Values KerasBuilder::conv_lstm(const KerasCall& c) {
  const bool backwards = c.flag("go_backwards", false);
  if (!mask_of(c).empty()) lacks(c, "a mask");
  if (c.text("data_format", "channels_last") != "channels_last") lacks(c, "channels_first");
  const std::string inner = c.text("activation", "tanh"),
                    gates = c.text("recurrent_activation", "sigmoid");
  for (const std::string& name : {inner, gates})
    if (name != "tanh" && name != "sigmoid" && name != "hard_sigmoid" && name != "relu" &&
        name != "linear")
      lacks(c, fmt::format("the activation '{}'", name));
  const KerasWeights cell = c.weights.child("cell", "");
  const Tensor w = cell.at(0), r = cell.at(1);
  if (w.dim() < 3 || r.dim() != w.dim() || w.size(-1) % 4 != 0 || r.size(-1) != w.size(-1))
    fail(fmt::format("the layer '{}' has weights {} and {}", c.name, w.shape().to_string(),
                     r.shape().to_string()));
  Values in{c.in(), constant(c.name + "/kernel", w), constant(c.name + "/recurrent_kernel", r),
            c.flag("use_bias", true) ? constant(c.name + "/bias", cell.at(2)) : ""};
  for (const std::string& s : initial_states(c)) in.push_back(s);
  const auto dims = static_cast<size_t>(w.dim() - 2);
  const std::string y =
      node(c, "ConvLSTM", std::move(in),
           {onnx_ints("strides", c.list("strides", dims, 1)),
            onnx_ints("dilations", c.list("dilation_rate", dims, 1)),
            onnx_text("padding", c.text("padding", "valid")), onnx_text("activation", inner),
            onnx_text("gates", gates), onnx_int("backwards", backwards)},
           kOnnxKeras);
  for (const char* state : {":h", ":c"}) {
    model_.graph.nodes.back().outputs.push_back(y + state);
    used_.insert(y + state);
  }
  return recurrent_outputs(c, {y, y + ":h", {y + ":h", y + ":c"}}, false);
}

Values KerasBuilder::bidirectional(const KerasCall& c) {
  const Json *forward = c.find("layer"), *backward = c.find("backward_layer");
  if (!backward || backward->is_null()) backward = forward;
  if (!forward || !forward->as_object() || !backward->as_object())
    fail(fmt::format("the layer '{}' holds no layer", c.name));
  const Values initial = initial_states(c);
  Values parts, states;
  bool sequences = false;
  for (const bool back : {false, true}) {
    const Json& layer = *(back ? backward : forward);
    const Json& config = keras_member(layer, "config");
    std::string name = io::text_of(config.find("name"));
    const std::string prefix = back ? "backward_" : "forward_";
    if (!name.starts_with(prefix))
      name = prefix + (name.starts_with("forward_") ? name.substr(8) : name);
    KerasCall inner{config,
                    c.name + "/" + name,
                    io::text_of(layer.find("class_name")),
                    {c.in()},
                    {},
                    {},
                    {},
                    0,
                    c.weights.child(back ? "backward_layer" : "forward_layer", name)};
    const size_t half = initial.size() / 2;
    inner.inputs.insert(inner.inputs.end(), initial.begin() + static_cast<int64_t>(back ? half : 0),
                        initial.begin() + static_cast<int64_t>(back ? initial.size() : half));
    if (const std::string mask = mask_of(c); !mask.empty()) inner.named.emplace_back("mask", mask);
    const Steps s = cell_steps(inner, back);
    sequences = inner.flag("return_sequences", false);
    parts.push_back(sequences ? s.all : s.last);
    if (inner.flag("return_state", false))
      states.insert(states.end(), s.states.begin(), s.states.end());
  }
  const std::string mode = c.find("merge_mode") && c.find("merge_mode")->is_null()
                               ? "none"
                               : c.text("merge_mode", "concat");
  Values out;
  if (mode == "none")
    out = parts;
  else if (mode == "concat")
    out = {onnx(c, "Concat", parts, {onnx_int("axis", -1)})};
  else if (mode == "mul")
    out = {node(c, "Mul", parts)};
  else if (mode == "sum" || mode == "ave")
    out = {node(c, "AddV2", parts)};
  else
    lacks(c, fmt::format("merging by '{}'", mode));
  if (mode == "ave") out = {node(c, "Mul", {out[0], number(0.5)})};
  const std::string mask = mask_of(c);
  if (sequences && !mask.empty())
    for (const std::string& y : out) masks_[y] = mask;
  out.insert(out.end(), states.begin(), states.end());
  return out;
}

// The steps become rows of the batch and are split off again.
Values KerasBuilder::time_distributed(const KerasCall& c) {
  const Json* layer = c.find("layer");
  const std::string name = io::text_of(config_of(layer).find("name"));
  const std::string rows = node(c, "JoinSteps", {c.in()}, {}, kOnnxKeras);
  Values out = call_inner(c, layer, {rows}, c.weights.child("layer", name));
  for (std::string& y : out) y = node(c, "SplitSteps", {y, c.in()}, {}, kOnnxKeras);
  return out;
}

}  // namespace tandem::onnx
