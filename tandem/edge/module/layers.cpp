// SPDX-License-Identifier: Apache-2.0
// Which calls are layers of nn: a table of rows with the parameter that each input is in its layer,
// and of rows that are layers without parameters.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/edge/module/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::edge {
namespace {

// One call that may be a layer's.
struct LayerCall {
  const StepGraph& g;
  const ModuleStep& step;
  const Tensor& held(size_t i) const { return g.weight(step, i)->value; }
  bool has(size_t i) const { return i < step.in.size() && step.in[i].value != kNoValue; }
  const Spec& spec(size_t i) const { return g.spec(step.in[i].value); }
  template <class A>
  const A& attrs() const {
    return StepGraph::attrs<A>(step);
  }
};

std::string ranked(const char* name, int rank) { return fmt::format("nn::{}{}d", name, rank); }

bool conv_layer(const LayerCall& c, Layer& l) {
  const auto& a = c.attrs<ConvAttrs>();
  if (!(a.padding == a.padding_end)) return false;
  const Tensor& w = c.held(1);
  l.type = ranked("Conv", w.dim() - 2);
  append(l.arguments, number(w.size(1) * a.groups, "in_channels"));
  append(l.arguments, ", ");
  append(l.arguments, number(w.size(0), "out_channels"));
  append(l.arguments, ", ");
  IntList kernel;
  for (int d = 2; d < w.dim(); ++d) kernel.push_back(w.size(d));
  append(l.arguments, sizes(kernel, "kernel_size"));
  add_options(l.arguments, {{"stride", sizes(a.stride, "stride"), "1"},
                            {"padding", sizes(a.padding, "padding"), "0"},
                            {"dilation", sizes(a.dilation, "dilation"), "1"},
                            {"groups", number(a.groups, "groups"), "1"},
                            {"bias", words(c.has(2) ? "true" : "false"), "true"},
                            dtype_option(w.dtype())});
  return true;
}

bool linear_layer(const LayerCall& c, Layer& l) {
  const Tensor& w = c.held(1);
  l.type = "nn::Linear";
  append(l.arguments, number(w.size(1), "in_features"));
  append(l.arguments, ", ");
  append(l.arguments, number(w.size(0), "out_features"));
  add_options(l.arguments,
              {{"bias", words(c.has(2) ? "true" : "false"), "true"}, dtype_option(w.dtype())});
  return true;
}

bool batch_norm_layer(const LayerCall& c, Layer& l) {
  if (c.has(3) != c.has(4)) return false;
  l.type = ranked("BatchNorm", std::max(1, c.spec(0).rank() - 2));
  append(l.arguments, number(c.held(1).size(0), "num_features"));
  add_options(l.arguments, {{"eps", words(real(c.attrs<NormAttrs>().eps)), real(1e-5)},
                            {"affine", words(c.has(3) ? "true" : "false"), "true"},
                            dtype_option(c.held(1).dtype())});
  l.weights.emplace_back("num_batches_tracked", zeros({}, DType::i64));
  return true;
}

bool last_norm_layer(const LayerCall& c, Layer& l, const char* type, Option bias, Option eps) {
  if (!c.has(1)) return false;
  const Tensor& w = c.held(1);
  l.type = type;
  append(l.arguments, w.dim() == 1
                          ? number(w.size(0), "normalized_shape")
                          : words(fmt::format("IntList{{{}}}", fmt::join(w.sizes(), ", "))));
  std::vector<Option> options = {std::move(eps)};
  if (!bias.name.empty()) options.push_back(std::move(bias));
  options.push_back(dtype_option(w.dtype()));
  add_options(l.arguments, std::move(options));
  return true;
}
bool layer_norm_layer(const LayerCall& c, Layer& l) {
  return last_norm_layer(c, l, "nn::LayerNorm",
                         {"bias", words(c.has(2) ? "true" : "false"), "true"},
                         {"eps", words(real(c.attrs<NormAttrs>().eps)), real(1e-5)});
}
bool rms_norm_layer(const LayerCall& c, Layer& l) {
  return last_norm_layer(c, l, "nn::RMSNorm", {},
                         {"eps", words(real(c.attrs<NormAttrs>().eps)), ""});
}

bool embedding_layer(const LayerCall& c, Layer& l) {
  const auto& a = c.attrs<IndexAttrs>();
  const Tensor& w = c.held(0);
  if (c.step.in.size() != 2 || a.dim != 0 || a.wrap || w.dim() != 2) return false;
  l.type = "nn::Embedding";
  append(l.arguments, number(w.size(0), "num_embeddings"));
  append(l.arguments, ", ");
  append(l.arguments, number(w.size(1), "embedding_dim"));
  add_options(l.arguments,
              {{"padding_idx", words(std::to_string(a.skip)), "-1"}, dtype_option(w.dtype())});
  return true;
}

bool prelu_layer(const LayerCall& c, Layer& l) {
  if (c.held(1).dim() != 1) return false;
  l.type = "nn::PReLU";
  append(l.arguments, number(c.held(1).size(0), "num_parameters"));
  return true;
}

// A row that may be a layer's call: for each input the parameter that it is, "" for what is
// computed; a `?` may be absent. `name` is what a layer is called whose weights have no path.
struct LayerRule {
  const char* row;
  std::vector<std::string> roles;
  bool (*make)(const LayerCall&, Layer&);
  const char* name;
};
const std::vector<LayerRule>& layer_rules() {
  static const std::vector<LayerRule> rules = {
      {"conv", {"", "weight", "bias?"}, conv_layer, "conv"},
      {"linear", {"", "weight", "bias?"}, linear_layer, "fc"},
      {"batch_norm_infer",
       {"", "running_mean", "running_var", "weight?", "bias?"},
       batch_norm_layer,
       "norm"},
      {"layer_norm", {"", "weight?", "bias?"}, layer_norm_layer, "norm"},
      {"rms_norm", {"", "weight?"}, rms_norm_layer, "norm"},
      {"index", {"weight", ""}, embedding_layer, "embedding"},
      {"prelu", {"", "weight"}, prelu_layer, "prelu"},
  };
  return rules;
}

class LayerFinder {
 public:
  explicit LayerFinder(TracedModel& m) : m_(m) {}

  void find() {
    by_scope();
    const StepGraph g(m_);
    std::vector<FoundLayer> found;
    for (ModuleStep& s : m_.steps) {
      if (!s.node) continue;
      if (auto f = g.is_op(&s, "matmul") ? matmul_layer(g, s) : by_row(g, s))
        take(g, std::move(*f), found);
    }
    replace(found);
  }

 private:
  // Layers of several ops: the whole of a scope, the innermost ones last.
  void by_scope() {
    std::set<std::string> paths;
    for (const ModuleStep& s : m_.steps) paths.insert(s.path);
    const StepGraph g(m_);
    std::vector<FoundLayer> found;
    std::string inside;
    for (const std::string& path : paths) {
      if (path.empty() || (!inside.empty() && is_below(path, inside))) continue;
      std::vector<ModuleStep*> steps;
      for (ModuleStep& s : m_.steps)
        if (is_below(s.path, path)) steps.push_back(&s);
      if (auto f = layer_of_scope(g, path, steps)) {
        inside = path;
        take(g, std::move(*f), found);
      }
    }
    replace(found);
  }

  static std::string role_name(const std::string& role) {
    return role.ends_with('?') ? role.substr(0, role.size() - 1) : role;
  }

  std::optional<FoundLayer> by_row(const StepGraph& g, ModuleStep& s) const {
    const auto& rules = layer_rules();
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const LayerRule& r) { return g.is_op(&s, r.row); });
    if (rule == rules.end() || s.in.size() > rule->roles.size()) return {};
    FoundLayer f;
    for (size_t i = 0; i < s.in.size(); ++i) {
      const std::string& role = rule->roles[i];
      const Weight* w = g.weight(s, i);
      if (role.empty()) {
        if (s.in[i].value == kNoValue) return {};
        f.in.push_back(s.in[i].value);
      } else if (w) {
        f.layer.weights.emplace_back(role_name(role), w->value);
        f.held.push_back(m_.values[static_cast<size_t>(s.in[i].value)].weight);
      } else if (s.in[i].value != kNoValue || !role.ends_with('?')) {
        return {};
      }
    }
    if (f.held.empty() || !rule->make(LayerCall{g, s}, f.layer)) return {};
    f.layer.path = path_of(f, s, rule->name);
    // A module of its own that calls the row among others is no layer of nn.
    for (const ModuleStep& o : m_.steps)
      if (f.layer.path == s.path && o.path == s.path && o.node && o.node->op != s.node->op)
        return {};
    f.out = {s.out[0]};
    f.steps = {&s};
    return f;
  }

  // x W^T + b as two ops: what other formats make of a Linear. Its weight is brought into order.
  std::optional<FoundLayer> matmul_layer(const StepGraph& g, ModuleStep& s) const {
    const auto& a = StepGraph::attrs<MatmulAttrs>(s);
    const Weight* w = g.weight(s, 1);
    if (!w || g.weight(s, 0) || w->value.dim() != 2 || a.trans_a ||
        g.readers(s.in[1].value).size() != 1)
      return {};
    const Tensor weight = a.trans_b ? w->value : w->value.t().contiguous();
    FoundLayer f;
    f.held = {m_.values[static_cast<size_t>(s.in[1].value)].weight};
    f.in = {s.in[0].value};
    f.out = {s.out[0]};
    f.steps = {&s};
    f.layer.type = "nn::Linear";
    f.layer.weights.emplace_back("weight", weight);
    ModuleStep* sum = g.only_reader(s.out[0]);
    if (g.is_op(sum, "add") && sum->path == s.path)
      for (size_t i = 0; i < 2; ++i) {
        const Weight* b = g.weight(*sum, i);
        if (!b || b->value.dim() != 1 || b->value.size(0) != weight.size(0)) continue;
        f.layer.weights.emplace_back("bias", b->value);
        f.held.push_back(m_.values[static_cast<size_t>(sum->in[i].value)].weight);
        f.out = {sum->out[0]};
        f.steps.push_back(sum);
        break;
      }
    append(f.layer.arguments, number(weight.size(1), "in_features"));
    append(f.layer.arguments, ", ");
    append(f.layer.arguments, number(weight.size(0), "out_features"));
    add_options(f.layer.arguments, {{"bias", words(f.held.size() > 1 ? "true" : "false"), "true"},
                                    dtype_option(weight.dtype())});
    f.layer.path = path_of(f, s, "fc");
    return f;
  }

  // Its weights' common path, if they have the names that they have in the layer; else its scope;
  // else a name and a number.
  std::string path_of(const FoundLayer& f, const ModuleStep& s, const char* name) const {
    std::string path;
    bool named = true;
    for (size_t i = 0; i < f.held.size(); ++i) {
      const std::string& full = m_.weights[static_cast<size_t>(f.held[i])].path;
      const std::string parent = parent_path(full);
      named = named && !parent.empty() && last_part(full) == f.layer.weights[i].first &&
              (i == 0 || parent == path);
      if (i == 0) path = parent;
    }
    if (named) return path;
    // The scope, where it holds this call alone.
    size_t others = 0;
    for (const ModuleStep& o : m_.steps) others += is_below(o.path, s.path) && &o != &s;
    if (!s.path.empty() && others == 0) return s.path;
    std::set<std::string> taken;
    for (const Layer& l : m_.layers) taken.insert(l.path);
    for (int i = 1;; ++i) {
      const std::string one = fmt::format("{}{}{}{}", s.path, s.path.empty() ? "" : ".", name, i);
      if (!taken.contains(one)) return one;
    }
  }

  // Accept it, unless another layer has its weights.
  void take(const StepGraph&, FoundLayer f, std::vector<FoundLayer>& found) {
    const auto same = std::find_if(m_.layers.begin(), m_.layers.end(),
                                   [&](const Layer& l) { return l.path == f.layer.path; });
    if (same != m_.layers.end() && !(*same == f.layer)) return;
    if (same == m_.layers.end()) {
      for (const int w : f.held)
        if (owner_.contains(w)) return;
      for (const int w : f.held) owner_[w] = static_cast<int>(m_.layers.size());
      m_.layers.push_back(f.layer);
    }
    found.push_back(std::move(f));
  }

  void replace(const std::vector<FoundLayer>& found) {
    std::map<const ModuleStep*, const FoundLayer*> last;
    std::set<const ModuleStep*> gone;
    for (const FoundLayer& f : found) {
      last[f.steps.back()] = &f;
      gone.insert(f.steps.begin(), f.steps.end() - 1);
    }
    std::vector<ModuleStep> steps;
    for (ModuleStep& s : m_.steps) {
      if (gone.contains(&s)) continue;
      const auto at = last.find(&s);
      if (at == last.end()) {
        steps.push_back(std::move(s));
        continue;
      }
      const FoundLayer& f = *at->second;
      ModuleStep call;
      for (size_t i = 0; i < m_.layers.size(); ++i)
        if (m_.layers[i].path == f.layer.path) call.layer = static_cast<int>(i);
      call.path = parent_path(f.layer.path);
      call.out = f.out;
      call.result = f.result;
      for (const ValueId v : f.in) call.in.push_back({v});
      steps.push_back(std::move(call));
    }
    m_.steps = std::move(steps);
  }

  TracedModel& m_;
  std::map<int, int> owner_;  // of a weight
};

}  // namespace

bool Layer::operator==(const Layer& o) const {
  return type == o.type && weights.size() == o.weights.size() &&
         weights[0].first == o.weights[0].first &&
         weights[0].second.impl()->data == o.weights[0].second.impl()->data;
}

void find_layers(TracedModel& m) { LayerFinder(m).find(); }

}  // namespace tandem::edge
