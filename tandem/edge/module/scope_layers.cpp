// SPDX-License-Identifier: Apache-2.0
// Layers that are several ops in the trace, recognised by the whole of their scope: the ops in
// their order, the parameters by name. What differs in anything stays as it is.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/edge/module/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::edge {
namespace {

using Steps = std::vector<ModuleStep*>;

// The steps of one scope with what the rules ask of them.
struct LayerScope {
  const StepGraph& g;
  std::string path;
  const Steps& steps;

  bool is(std::initializer_list<const char*> rows) const {
    if (steps.size() != rows.size()) return false;
    size_t i = 0;
    for (const char* row : rows)
      if (!g.is_op(steps[i++], row)) return false;
    return true;
  }
  // The weights that lie below the path, by their names there.
  std::map<std::string, int> weights() const {
    std::map<std::string, int> out;
    for (const ModuleStep* s : steps)
      for (size_t i = 0; i < s->in.size(); ++i)
        if (const Weight* w = g.weight(*s, i); w && w->path.starts_with(path + "."))
          out[w->path.substr(path.size() + 1)] =
              g.m.values[static_cast<size_t>(s->in[i].value)].weight;
    return out;
  }
  // What comes in from outside, each value once.
  std::vector<ValueId> inputs() const {
    std::vector<ValueId> out;
    for (const ModuleStep* s : steps)
      for (const ValueId v : computed_inputs(g.m, *s))
        if (!makes(g.maker(v)) && std::find(out.begin(), out.end(), v) == out.end())
          out.push_back(v);
    return out;
  }
  // What is read outside.
  std::vector<ValueId> outputs() const {
    std::vector<ValueId> out;
    const auto& last = g.m.outputs;
    for (const ModuleStep* s : steps)
      for (const ValueId v : s->out) {
        bool outside = std::find(last.begin(), last.end(), v) != last.end();
        for (const ModuleStep* r : g.readers(v)) outside = outside || !makes(r);
        if (outside) out.push_back(v);
      }
    return out;
  }
  bool makes(const ModuleStep* s) const {
    return std::find(steps.begin(), steps.end(), s) != steps.end();
  }
  FoundLayer found(std::string type, std::vector<ValueId> in, ValueId out) const {
    FoundLayer f;
    f.in = std::move(in);
    f.out = {out};
    f.layer.path = path;
    f.layer.type = std::move(type);
    for (const auto& [name, w] : weights()) {
      f.layer.weights.emplace_back(name, g.m.weights[static_cast<size_t>(w)].value);
      f.held.push_back(w);
    }
    f.steps.assign(steps.begin(), steps.end());
    return f;
  }
};

bool has_names(const std::map<std::string, int>& weights, std::set<std::string> names) {
  for (const auto& [name, w] : weights)
    if (names.erase(name) == 0) return false;
  return names.empty();
}

std::optional<FoundLayer> transposed_conv(const LayerScope& s) {
  const bool bias = s.is({"conv_backward_input", "view", "add"});
  if (!bias && !s.is({"conv_backward_input"})) return {};
  const auto all = s.weights();
  if (!(bias ? has_names(all, {"weight", "bias"}) : has_names(all, {"weight"}))) return {};
  const ModuleStep& conv = *s.steps[0];
  const auto& a = StepGraph::attrs<ConvAttrs>(conv);
  const Weight* w = s.g.weight(conv, 1);
  if (!w || !(a.padding == a.padding_end)) return {};
  const Shape &x = s.g.spec(conv.in[0].value).shape, &y = s.g.spec(conv.out[0]).shape;
  IntList kernel, output_padding;
  for (int d = 0; d + 2 < x.rank(); ++d) {
    kernel.push_back(w->value.size(d + 2));
    const Dim more = y[d + 2] - ((x[d + 2] - 1) * a.stride[d] - a.padding[d] * 2 +
                                 (kernel[d] - 1) * a.dilation[d] + 1);
    if (more.is_symbolic()) return {};
    output_padding.push_back(more);
  }
  FoundLayer f = s.found(fmt::format("nn::ConvTranspose{}d", kernel.rank()), {conv.in[0].value},
                         s.steps.back()->out[0]);
  Text& t = f.layer.arguments;
  append(t, number(w->value.size(0), "in_channels"));
  append(t, ", ");
  append(t, number(w->value.size(1) * a.groups, "out_channels"));
  append(t, ", ");
  append(t, sizes(kernel, "kernel_size"));
  add_options(t, {{"stride", sizes(a.stride, "stride"), "1"},
                  {"padding", sizes(a.padding, "padding"), "0"},
                  {"output_padding", sizes(output_padding, "output_padding"), "0"},
                  {"groups", number(a.groups, "groups"), "1"},
                  {"bias", words(bias ? "true" : "false"), "true"},
                  {"dilation", sizes(a.dilation, "dilation"), "1"},
                  dtype_option(w->value.dtype())});
  return f;
}

std::optional<FoundLayer> group_norm(const LayerScope& s) {
  if (!s.is({"view", "layer_norm", "view", "view", "view", "mul", "add"}) ||
      !has_names(s.weights(), {"weight", "bias"}))
    return {};
  const Shape& grouped = s.g.spec(s.steps[0]->out[0]).shape;
  const Weight* w = s.g.weight(*s.steps[3], 0);
  if (s.inputs().size() != 1 || grouped.rank() != 3 || grouped[1].is_symbolic() || !w) return {};
  FoundLayer f = s.found("nn::GroupNorm", s.inputs(), s.steps.back()->out[0]);
  append(f.layer.arguments, number(grouped[1].value(), "num_groups"));
  append(f.layer.arguments, ", ");
  append(f.layer.arguments, number(w->value.size(0), "num_channels"));
  add_options(f.layer.arguments,
              {{"eps", words(real(StepGraph::attrs<NormAttrs>(*s.steps[1]).eps)), real(1e-5)},
               dtype_option(w->value.dtype())});
  return f;
}

// Heads of one size, the batch first, no mask and no cache: the forward pass of such a layer.
std::optional<FoundLayer> attention(const LayerScope& s) {
  const auto all = s.weights();
  const bool bias = all.contains("in_proj_bias");
  if (!(bias
            ? has_names(all, {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
            : has_names(all, {"in_proj_weight", "out_proj.weight"})))
    return {};
  std::vector<const char*> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back("slice");
    if (bias) rows.push_back("slice");
    for (const char* row : {"linear", "view", "permute"}) rows.push_back(row);
  }
  const size_t part = rows.size() / 3;
  for (const char* row : {"attention", "permute", "view", "linear"}) rows.push_back(row);
  if (s.steps.size() != rows.size()) return {};
  for (size_t i = 0; i < rows.size(); ++i)
    if (!s.g.is_op(s.steps[i], rows[i])) return {};
  std::vector<ValueId> in;
  for (size_t i = 0; i < 3; ++i) in.push_back(s.steps[i * part + part - 3]->in[0].value);
  const ModuleStep& seen = *s.steps[3 * part];
  const auto& a = StepGraph::attrs<AttentionAttrs>(seen);
  const Shape& q = s.g.spec(seen.in[0].value).shape;
  const IntList heads_first = {0, 2, 1, 3};
  if (q.rank() != 4 || q[1].is_symbolic() || a.scale != 0 || seen.in.at(3).value != kNoValue ||
      !(StepGraph::attrs<PermuteAttrs>(*s.steps[part - 1]).dims == heads_first))
    return {};
  FoundLayer f = s.found("nn::MultiheadAttention", in, s.steps.back()->out[0]);
  append(f.layer.arguments, number(s.g.spec(in[0]).shape.back().value(), "embed_dim"));
  append(f.layer.arguments, ", ");
  append(f.layer.arguments, number(q[1].value(), "num_heads"));
  add_options(f.layer.arguments, {{"bias", words(bias ? "true" : "false"), "true"},
                                  {"batch_first", words("true"), ""}});
  if (a.causal) f.result = "{.is_causal = true}";
  return f;
}

bool is_zero_fill(const StepGraph& g, ValueId v) {
  const ModuleStep* s = g.maker(v);
  return g.is_op(s, "fill") && StepGraph::attrs<FillAttrs>(*s).value.to_double() == 0;
}
bool swaps_first(const StepGraph& g, const ModuleStep* s) {
  return g.is_op(s, "permute") && StepGraph::attrs<PermuteAttrs>(*s).dims == IntList{1, 0, 2};
}

// LSTM, GRU and RNN over whole sequences from states of zero.
std::optional<FoundLayer> recurrent(const LayerScope& s) {
  struct Kind {
    const char *row, *type;
    size_t states;  // inputs after x
  };
  constexpr Kind kKinds[] = {{"lstm", "nn::LSTM", 2}, {"gru", "nn::GRU", 1}, {"rnn", "nn::RNN", 1}};
  const Kind* kind = nullptr;
  int64_t rows = 0;
  const ModuleStep *first = nullptr, *last = nullptr;
  for (const ModuleStep* step : s.steps)
    for (const Kind& k : kKinds)
      if (s.g.is_op(step, k.row)) {
        if (kind && kind != &k) return {};
        kind = &k;
        ++rows;
        for (size_t i = 1; i <= k.states; ++i)
          if (!is_zero_fill(s.g, step->in[i].value)) return {};
        if (!first) first = step;
        last = step;
      }
  const std::vector<ValueId> in = s.inputs(), out = s.outputs();
  if (!kind || in.size() != 1 || out.size() != 1 || s.g.spec(in[0]).rank() != 3) return {};
  const auto all = s.weights();
  const bool both = all.contains("weight_ih_l0_reverse"), bias = all.contains("bias_ih_l0");
  const int64_t layers = rows / (both ? 2 : 1);
  std::set<std::string> names;
  for (int64_t l = 0; l < layers; ++l)
    for (const char* way : {"", "_reverse"}) {
      if (*way && !both) continue;
      for (const char* name : {"weight_ih", "weight_hh"})
        names.insert(fmt::format("{}_l{}{}", name, l, way));
      if (bias)
        for (const char* name : {"bias_ih", "bias_hh"})
          names.insert(fmt::format("{}_l{}{}", name, l, way));
    }
  if (!has_names(all, names)) return {};
  for (const ModuleStep* step : s.steps) {
    const bool known = s.g.is_op(step, kind->row) || s.g.is_op(step, "fill") ||
                       s.g.is_op(step, "view") || s.g.is_op(step, "permute") ||
                       s.g.is_op(step, "cat");
    if (!known) return {};
  }
  // y, or the final states where there is one direction of one layer.
  const ModuleStep* end = s.g.maker(out[0]);
  const bool batch_first = swaps_first(s.g, s.steps[0]) && s.steps[0]->in[0].value == in[0];
  std::string result = ".y";
  if (rows == 1 && s.g.is_op(end, "view")) {
    const ValueId state = end->in[0].value;
    for (size_t i = 1; i <= kind->states; ++i)
      if (last->out[i] == state) result = i == 1 ? ".h" : ".c";
    if (result == ".y") return {};
  } else if (batch_first ? !swaps_first(s.g, end) : end != last && !s.g.is_op(end, "cat")) {
    return {};
  }
  FoundLayer f = s.found(kind->type, in, out[0]);
  f.result = result;
  const Tensor &w_ih = s.g.m.weights[static_cast<size_t>(all.at("weight_ih_l0"))].value,
               &w_hh = s.g.m.weights[static_cast<size_t>(all.at("weight_hh_l0"))].value;
  append(f.layer.arguments, number(w_ih.size(1), "input_size"));
  append(f.layer.arguments, ", ");
  append(f.layer.arguments, number(w_hh.size(1), "hidden_size"));
  const auto* rnn =
      kind->states == 1 && kind->row[0] == 'r' ? &StepGraph::attrs<RnnAttrs>(*first) : nullptr;
  std::vector<Option> options = {{"num_layers", number(layers, "num_layers"), "1"}};
  if (rnn && rnn->relu) options.push_back({"nonlinearity", words("\"relu\""), ""});
  options.push_back({"bias", words(bias ? "true" : "false"), "true"});
  options.push_back({"batch_first", words(batch_first ? "true" : "false"), "false"});
  options.push_back({"bidirectional", words(both ? "true" : "false"), "false"});
  options.push_back(dtype_option(w_ih.dtype()));
  add_options(f.layer.arguments, std::move(options));
  return f;
}

}  // namespace

std::optional<FoundLayer> layer_of_scope(const StepGraph& g, const std::string& path,
                                         const std::vector<ModuleStep*>& steps) {
  const LayerScope s{g, path, steps};
  for (const auto rule : {transposed_conv, group_norm, attention, recurrent})
    if (auto f = rule(s)) return f;
  return {};
}

}  // namespace tandem::edge
