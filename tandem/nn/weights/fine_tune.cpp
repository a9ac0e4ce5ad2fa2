// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/fine_tune.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "tandem/base/nearest.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/init.h"
#include "tandem/nn/linear.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn {

// ---- names

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty() || name[0] == '.';
  if (pattern[0] == '*') {
    for (size_t n = 0; n <= name.size(); ++n)
      if (name_matches(pattern.substr(1), name.substr(n))) return true;
    return false;
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return name_matches(pattern.substr(1), name.substr(1));
}

namespace {

// The names matched by any of `patterns`; every pattern must match one.
std::set<std::string> chosen(const std::vector<std::string>& names,
                             const std::vector<std::string>& patterns, const char* what) {
  std::set<std::string> out;
  for (const std::string& pattern : patterns) {
    const size_t before = out.size();
    bool any = false;
    for (const std::string& name : names)
      if (name_matches(pattern, name)) {
        any = true;
        out.insert(name);
      }
    if (any || out.size() > before) continue;
    std::set<std::string> known(names.begin(), names.end());  // and the modules that contain them
    for (const std::string& name : names)
      for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
        known.insert(name.substr(0, dot));
    const std::string near = nearest_word(pattern, {known.begin(), known.end()});
    TD_FAIL(Value, "'{}' matches no {} of the model{}", pattern, what,
            near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
  }
  return out;
}

std::vector<std::string> parameter_names(const Module& m) {
  std::vector<std::string> out;
  for (const auto& [name, p] : m.named_parameters()) out.push_back(name);
  return out;
}

}  // namespace

size_t freeze(Module& m, const std::vector<std::string>& patterns) {
  const std::set<std::string> names = chosen(parameter_names(m), patterns, "parameter or module");
  for (auto& [name, p] : m.named_parameters())
    if (names.count(name)) p.requires_grad_(false);
  return names.size();
}

// ---- depth

std::vector<int64_t> parameter_depths(const Module& m) {
  std::map<std::string, Module*> modules;
  const auto in_order = const_cast<Module&>(m).named_modules();
  for (const auto& [path, child] : in_order) modules[path] = child;
  // Paths of modules that are split into their children, outer ones first.
  std::set<std::string> split{""};
  const int64_t all = m.num_parameters();
  for (const auto& [path, child] : in_order) {
    std::string parent = path;  // elements of a list, "layers.3", have no parent module "layers"
    do parent.resize(parent.find('.') == parent.npos ? 0 : parent.rfind('.'));
    while (!modules.count(parent));
    const auto inside = modules.upper_bound(path + ".");
    const bool holds_modules = inside != modules.end() && inside->first.starts_with(path + ".");
    if (split.count(parent) && holds_modules &&
        (child->type() == "Sequential" || 2 * child->num_parameters() > all))
      split.insert(path);
  }
  std::vector<int64_t> out;
  std::string last;
  int64_t next = 0;
  for (const auto& [name, p] : m.named_parameters()) {
    // The block is the outermost module on the path that is not split.
    std::string block;
    for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
      const std::string path = name.substr(0, dot);
      if (!modules.count(path) || split.count(path)) continue;
      block = path;
      break;
    }
    if (!block.empty() && block != last) {
      last = block;
      ++next;
    }
    out.push_back(block.empty() ? next : next - 1);
  }
  // Parameters after the last block get the last block's depth.
  for (int64_t& depth : out) depth = std::min(depth, std::max<int64_t>(next - 1, 0));
  return out;
}

// ---- LoRA

namespace {

/// The update of one layer. The layer's hook owns it; `kind` of the layer's state points to it, so
/// that walks over the members find it. A clone has its own state: the first walk over it gives it
/// an update of its own.
struct Update {
  Param A, B;
  double scale, dropout;
  const detail::ModuleState* owner;
  int hook;
};

detail::ModuleState::ForwardHook hook_of(std::shared_ptr<Update> u) {
  return [u](Module& m, const Tensor& in, const Tensor& out) {
    const Tensor x = u->dropout > 0 ? dropout(in, u->dropout, m.is_training()) : in;
    return out + linear(linear(x, u->A.value(), {}), u->B.value(), {}) * u->scale;
  };
}

Update& update_of(Module& m) {
  detail::ModuleState& s = m.state();
  auto* u = static_cast<Update*>(const_cast<void*>(s.kind));
  if (u->owner == &s) return *u;
  auto own = std::make_shared<Update>(*u);
  own->owner = &s;
  for (auto& [id, hook] : s.hooks)
    if (id == own->hook) hook = hook_of(own);
  s.kind = own.get();
  return *own;
}

// The function that calls a Linear: distinguishes it from other classes of that name.
auto linear_forward() {
  static const auto forward = [] {
    GeneratorGuard no_draws({0, 0});
    return Linear(1, 1).state().forward;
  }();
  return forward;
}
bool is_linear(const Module& m) {
  return m.type() == "Linear" && m.state().forward == linear_forward();
}
bool has_update(const Module& m) {
  return std::any_of(m.state().members.begin(), m.state().members.end(),
                     [](const auto& member) { return member.name == "lora_A.weight"; });
}

void add_update(Linear& layer, const ApplyLoRAOptions& o) {
  const DType dtype = layer.weight.dtype();
  auto u = std::make_shared<Update>();
  u->A = Param(init::kaiming_uniform({o.r, layer.in_features}, std::sqrt(5.0), dtype));
  u->B = Param(zeros({layer.out_features, o.r}, dtype));
  u->scale = o.alpha / static_cast<double>(o.r);
  u->dropout = o.dropout;
  u->owner = &layer.state();
  u->hook = layer.register_forward_hook(hook_of(u));
  layer.state().kind = u.get();
  detail::VisitFn a = [](void* self, const std::string& name, MemberVisitor& v) {
    v.param(name, update_of(*static_cast<Module*>(self)).A);
  };
  detail::VisitFn b = [](void* self, const std::string& name, MemberVisitor& v) {
    v.param(name, update_of(*static_cast<Module*>(self)).B);
  };
  layer.state().members.push_back({"lora_A.weight", 0, a});
  layer.state().members.push_back({"lora_B.weight", 0, b});
}

}  // namespace

std::vector<std::string> apply_lora(Module& m, const ApplyLoRAOptions& o) {
  TD_CHECK(o.r > 0, Value, "LoRA expects a rank r > 0, got {}", o.r);
  TD_CHECK(o.dropout >= 0 && o.dropout < 1, Value, "LoRA expects a dropout in 0..1, got {}",
           o.dropout);
  std::map<std::string, Linear*> layers;
  std::vector<std::string> names;
  for (const auto& [path, child] : m.named_modules()) {
    if (!is_linear(*child)) continue;
    TD_CHECK(!has_update(*child), Value, "'{}' already has a LoRA update\nCall merge_lora() first.",
             path);
    layers[path] = static_cast<Linear*>(child);
    names.push_back(path);
  }
  TD_CHECK(
      !names.empty(), Value,
      "LoRA: the model has no Linear layer\nIt applies to Linear layers only; convolutions and "
      "packed projections of nn::MultiheadAttention get none.");
  const std::set<std::string> on = chosen(names, o.on, "Linear layer");
  const std::set<std::string> also = chosen(parameter_names(m), o.train, "parameter or module");
  for (auto& [name, p] : m.named_parameters()) p.requires_grad_(also.count(name) > 0);
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (on.count(name)) {
      add_update(*layers[name], o);
      out.push_back(name);
    }
  return out;
}

size_t merge_lora(Module& m) {
  NoGradGuard no_grad;
  size_t merged = 0;
  for (const auto& [path, child] : m.named_modules()) {
    if (!has_update(*child)) continue;
    auto& layer = *static_cast<Linear*>(child);
    const Update u = update_of(layer);
    layer.weight.assign_(layer.weight.value() + matmul(u.B.value(), u.A.value()) * u.scale);
    layer.remove_hook(u.hook);
    layer.state().kind = nullptr;
    std::erase_if(layer.state().members,
                  [](const auto& member) { return member.name.starts_with("lora_"); });
    ++merged;
  }
  return merged;
}

}  // namespace tandem::nn
