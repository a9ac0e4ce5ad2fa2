// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer in and out, by Tandem's names and PyTorch's.
#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/base/mismatch.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/optim/optimizer.h"

#include "tandem/optim/optimizer_internal.h"

namespace tandem::optim {

// Of each parameter; parameters of two nets side by side may have the same names.
std::vector<std::string> Optimizer::keys() const {
  std::unordered_map<std::string, size_t> count;
  for (const Param& p : params_) ++count[p.name()];
  std::vector<std::string> out;
  for (size_t i = 0; i < params_.size(); ++i) {
    const std::string& name = params_[i].name();
    out.push_back((name.empty() || count[name] > 1 ? std::to_string(i) : name) + ".");
  }
  return out;
}

namespace {
std::string group_key(size_t g, std::string_view name) {
  return fmt::format("param_groups.{}.{}", g, name);
}
}  // namespace

StateDict Optimizer::state_dict() const {
  StateDict d;
  const std::vector<std::string> key = keys();
  for (size_t i = 0; i < params_.size(); ++i) {
    for (const Kept& k : kept_)
      d[key[i] + k.name] =
          k.values.value().select(0, static_cast<int64_t>(i)).to(DType::f32).clone().detach();
    for (const auto& [name, b] : states_[i]) d[key[i] + name] = b.value().detach();
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<double> numbers = groups_[g].numbers.value().to_vector<double>();
    for (size_t k = 0; k < numbers.size(); ++k) {
      const Option& o = groups_[g].options[k];
      d[group_key(g, o.name)] = full({}, o.flag ? o.value : numbers[k], DType::f64);
    }
    if (groups_[g].initial_lr)
      d[group_key(g, "initial_lr")] = full({}, *groups_[g].initial_lr, DType::f64);
    std::vector<int64_t> members(groups_[g].members.begin(), groups_[g].members.end());
    d[group_key(g, "params")] = tensor(members);
  }
  extra_state(d);
  return d;
}

// Reads a state; nothing is stored before all of it has been checked.
struct Optimizer::Reader {
  const Optimizer& o;
  const StateDict& state;
  const std::vector<std::string> keys = o.keys();
  std::unordered_set<std::string> known = {};
  std::vector<std::pair<Ref<Cell>, Tensor>> plan = {};
  Mismatch found = {};

  // By this parameter's name, or as PyTorch counts it.
  const Tensor* find(size_t i, const char* own) {
    for (const std::string& name : {keys[i] + own, fmt::format("state.{}.{}", i, own)}) {
      known.insert(name);
      if (const Tensor* v = state.find(name)) return v;
    }
    return nullptr;
  }
  double number(const std::string& name, const Tensor* v) {
    if (v && v->numel() == 1) return v->to_vector<double>()[0];
    if (!v)
      found.missing.push_back(name);
    else
      found.differing.push_back(
          fmt::format("{} is one number here, {} in the state", name, v->shape().to_string()));
    return 0;
  }
  void moment(size_t i, const std::string& name, const Buffer& b) {
    const Tensor* v = find(i, name.c_str());
    if (!v)
      found.missing.push_back(keys[i] + name);
    else if (!(v->shape() == b.shape()) || v->dtype() != b.dtype())
      found.differing.push_back(fmt::format("{} is {} {} here, {} {} in the state", keys[i] + name,
                                            to_string(b.dtype()), b.shape().to_string(),
                                            to_string(v->dtype()), v->shape().to_string()));
    else
      plan.emplace_back(b.cell(), *v);
  }
  std::vector<double> group(size_t g) {
    std::vector<double> numbers;
    known.insert(group_key(g, "params"));
    known.insert(group_key(g, "initial_lr"));
    for (const Option& option : o.groups_[g].options) {
      std::string key = group_key(g, option.name);
      known.insert(key);
      numbers.push_back(number(key, state.find(key)));
    }
    size_t n = o.groups_[g].members.size();
    const Tensor* members = state.find(group_key(g, "params"));
    if (members && members->numel() != static_cast<int64_t>(n))
      found.differing.push_back(
          fmt::format("group {} has {} parameters here, {} in the state", g, n, members->numel()));
    return numbers;
  }
  void check() {
    for (const auto& [name, t] : state)
      if (!known.count(name)) found.unexpected.push_back(name);
    if (found.empty()) return;
    throw Error(found.differing.empty() ? ErrorKind::Value : ErrorKind::Shape,
                fmt::format("{}: the state does not fit: {}\n{}", o.type_, found.text(), hint()));
  }

 private:
  // Whose state it is: of another net, of another optimizer, or damaged.
  const char* hint() const {
    bool any = false, own = keys.empty();
    for (const auto& [name, t] : state) {
      if (name.starts_with("param_groups.")) continue;
      any = true;
      own |= name.starts_with("state.");
      for (size_t i = 0; i < keys.size() && !own; ++i) own = name.starts_with(keys[i]);
    }
    const bool values = !found.differing.empty();
    if ((any && !own) || values)
      return "It is the state of another net: load it into an optimizer over the parameters that "
             "it was saved of, in the same groups.";
    if (!found.missing.empty() && !found.unexpected.empty())
      return "It was saved by another optimizer, or with other options: make this one as that was.";
    return "Save it with state_dict() of an optimizer made as this one is.";
  }
};

void Optimizer::load_state_dict(const StateDict& state) {
  Reader read{*this, state};
  std::vector<std::vector<double>> kept(kept_.size()), numbers;
  for (size_t i = 0; i < params_.size(); ++i) {
    for (const auto& [name, b] : states_[i]) read.moment(i, name, b);
    for (size_t k = 0; k < kept_.size(); ++k) {
      const Tensor* v = read.find(i, kept_[k].name);
      bool absent = !v && k == 0 && step_optional_;
      kept[k].push_back(absent ? !states_[i].empty()
                               : read.number(read.keys[i] + kept_[k].name, v));
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) numbers.push_back(read.group(g));
  std::vector<std::string> more;
  load_extra_state(state, more, false);
  read.known.insert(more.begin(), more.end());
  std::vector<std::optional<double>> initial;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Tensor* v = state.find(group_key(g, "initial_lr"));
    initial.push_back(v ? std::optional(read.number(group_key(g, "initial_lr"), v)) : std::nullopt);
  }
  read.check();
  for (size_t k = 0; k < kept_.size(); ++k)
    read.plan.emplace_back(kept_[k].values.cell(), numbers_of(kept[k]));
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t k = 0; k < numbers[g].size(); ++k)
      if (groups_[g].options[k].flag) groups_[g].options[k].value = numbers[g][k];
    if (initial[g]) groups_[g].initial_lr = initial[g];
    read.plan.emplace_back(groups_[g].numbers.cell(), numbers_of(numbers[g]));
  }
  for (auto& [cell, v] : read.plan) cell->assign(v, SourceLocation{});
  load_extra_state(state, more, true);
}

}  // namespace tandem::optim
