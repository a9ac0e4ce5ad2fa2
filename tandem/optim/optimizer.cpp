// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizer.h"

#include "tandem/optim/optimizer_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::optim {

ParamList::ParamList(std::vector<Param> params) { groups.push_back({std::move(params)}); }
ParamList::ParamList(std::initializer_list<Param> params) : ParamList(std::vector<Param>(params)) {}

namespace {

// The numbers and flags of options under the names that groups know them by: those of a list are
// its elements' ("beta1"), an optional without a value is -1. Whatever else an optimizer has
// (whole numbers, words, lists without names) is the same for all groups.
struct OptionList : QuietVisitor {
  struct Entry {
    std::string name;
    double value;
    bool flag;
    const char* field;
    Field bounds;
  };
  std::vector<Entry> all;
  bool only_given = false;  ///< leave out optionals without a value

  void flag(const char* name, bool& v, const Field& f) override {
    all.push_back({name, v ? 1.0 : 0.0, true, name, f});
  }
  void number(const char* name, double& v, const Field& f) override {
    all.push_back({name, v, false, name, f});
  }
  void numbers(const char* name, std::vector<double>& v, const Field& f) override {
    const std::vector<std::string> names = words_of(f.elements);
    for (size_t i = 0; i < names.size() && i < v.size(); ++i)
      all.push_back({names[i], v[i], false, name, f});
  }
  bool has_value(const char* name, bool now, const Field&) override {
    if (!now && !only_given) all.push_back({name, -1, false, name, {}});
    return now;
  }
};

std::vector<OptionList::Entry> given_options(const ParamGroup& group) {
  OptionList list;
  list.only_given = true;
  any_fields(group).visit(list);
  return std::move(list.all);
}

}  // namespace

double Optimizer::Options::operator[](std::string_view name) const {
  for (const Option& o : all_)
    if (o.name == name) return o.value;
  TD_FAIL(Internal, "{} has no option '{}'", type_, name);
}

Optimizer::Optimizer(const char* type, AnyFields options) : type_(type) {
  OptionList list;
  options.visit(list);
  for (OptionList::Entry& e : list.all)
    defaults_.push_back({std::move(e.name), e.value, e.flag, e.field, e.bounds});
  kept_.push_back({"step", 0, {}});
}

void Optimizer::add_all(ParamList list) {
  size_t n = 0;
  for (const ParamGroup& g : list.groups) n += g.params.size();
  TD_CHECK(n > 0, Value,
           "{} got no parameters\nName the layers of your module with TD_REGISTER in its "
           "constructor.",
           type_);
  for (ParamGroup& g : list.groups) add_param_group(std::move(g));
}

void Optimizer::check_new(const ParamGroup& group) const {
  TD_CHECK(!group.params.empty(), Value,
           "{}: a group without parameters\nName the layers of your module with TD_REGISTER.",
           type_);
  std::unordered_set<const Cell*> seen;
  for (const Param& p : params_) seen.insert(p.cell().get());
  for (size_t i = 0; i < group.params.size(); ++i) {
    const Param& p = group.params[i];
    TD_CHECK(p.defined(), Value, "{}: parameter {} is empty", type_, i);
    TD_CHECK(seen.insert(p.cell().get()).second, Value,
             "{}: parameter {} ('{}') comes twice\nLayers that are copied share their weights: "
             "make them "
             "again, as nn::repeat() does.",
             type_, i, p.name());
  }
  check_sharding(group.params);
  for (const OptionList::Entry& e : given_options(group))
    TD_CHECK(has_option(e.name), Value, "{} has no option '{}'\nLeave it out of the group.", type_,
             e.name);
}

// An update that looks at whole parameters would be another one on a part.
void Optimizer::check_sharding(const std::vector<Param>& params) const {
  if (elementwise()) return;
  for (const Param& p : params)
    TD_CHECK(tandem::detail::shard_role(*p.cell()) != tandem::detail::ShardRole::part, Unsupported,
             "{} on parts of parameters ('{}'): its updates look at whole ones\nUse Sharding::none "
             "(strategy: ddp), or an elementwise optimizer such as AdamW.",
             type_, p.name());
}

void Optimizer::add_param_group(ParamGroup group) {
  TD_CHECK(!is_tracing(), Unsupported, "{}: a group cannot be added inside a trace", type_);
  check_new(group);
  Group g{{}, defaults_, {}, {}};
  for (const OptionList::Entry& e : given_options(group))
    for (Option& o : g.options)
      if (o.name == e.name) o.value = e.value;
  for (const Option& o : g.options)
    TD_CHECK(in_bounds(o.bounds, o.value), Value, "{} expects {}, got {}", type_,
             bounds_formula(o.field, o.bounds), o.value);
  // All checks come before the first change.
  size_t first = params_.size();
  states_.resize(first + group.params.size());
  for (const Param& p : group.params) params_.push_back(p);
  try {
    for (size_t i = first; i < params_.size(); ++i) {
      g.members.push_back(i);
      init(Options(g.options, type_), i);
    }
  } catch (...) {
    states_.resize(first);
    params_.resize(first);
    throw;
  }
  group_of_.resize(params_.size(), groups_.size());
  std::vector<double> numbers;
  for (const Option& o : g.options) numbers.push_back(o.value);
  g.numbers = Buffer(numbers_of(numbers));
  g.numbers.cell()->name =
      fmt::format("{}.options{}", type_, groups_.empty() ? "" : std::to_string(groups_.size()));
  groups_.push_back(std::move(g));
  for (Kept& k : kept_) {
    std::vector<double> v;
    if (k.values.defined()) v = k.values.value().to_vector<double>();
    v.resize(params_.size(), k.start);
    if (k.values.defined())
      k.values.cell()->replace(numbers_of(v));
    else
      k.values = Buffer(numbers_of(v));
    k.values.cell()->name = fmt::format("{}.{}", type_, k.name);
  }
}

void Optimizer::replace_params(const std::vector<Param>& params) {
  TD_CHECK(params.size() == params_.size(), Value,
           "{} has {} parameters, they cannot be replaced by {}", type_, params_.size(),
           params.size());
  check_sharding(params);
  const std::vector<Param> before = std::exchange(params_, params);
  const auto states = std::exchange(states_, decltype(states_)(params.size()));
  try {
    for (size_t i = 0; i < params_.size(); ++i)
      init(Options(groups_[group_of_[i]].options, type_), i);
  } catch (...) {
    params_ = before;
    states_ = states;
    throw;
  }
}

std::vector<Param> Optimizer::params(size_t group) const {
  TD_CHECK(group < groups_.size(), Index, "{} has {} groups, not group {}", type_, groups_.size(),
           group);
  std::vector<Param> out;
  for (size_t i : groups_[group].members) out.push_back(params_[i]);
  return out;
}

size_t Optimizer::option_index(const std::string& name) const {
  for (size_t k = 0; k < defaults_.size(); ++k)
    if (defaults_[k].name == name && !defaults_[k].flag) return k;
  std::string all;
  for (const Option& o : defaults_)
    if (!o.flag) all += (all.empty() ? "" : ", ") + o.name;
  TD_FAIL(Value, "{} has no option '{}'\nIt has {}.", type_, name, all);
}

bool Optimizer::has_option(const std::string& name) const {
  return std::any_of(defaults_.begin(), defaults_.end(),
                     [&](const Option& o) { return o.name == name; });
}

std::vector<std::string> Optimizer::option_names() const {
  std::vector<std::string> all;
  for (const Option& o : defaults_)
    if (!o.flag) all.push_back(o.name);
  return all;
}

double Optimizer::option(const std::string& name, size_t group) const {
  TD_CHECK(!is_tracing(), Unsupported,
           "{} as a number would be frozen into the trace\nUse lr_tensor(), or read it outside.",
           name == "lr" ? "lr()" : "option(\"" + name + "\")");
  TD_CHECK(group < groups_.size(), Index, "{} has {} groups, not group {}", type_, groups_.size(),
           group);
  return groups_[group].numbers.value().to_vector<double>()[option_index(name)];
}

void Optimizer::set_option(const std::string& name, double value, size_t group) {
  TD_CHECK(group < groups_.size(), Index, "{} has {} groups, not group {}", type_, groups_.size(),
           group);
  const DeviceGuard on_host(cpu);
  groups_[group].numbers.write_(0, static_cast<int64_t>(option_index(name)),
                                full({1}, value, DType::f64));
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < groups_.size(); ++g) set_option("lr", lr, g);
}

double Optimizer::initial_lr(size_t group) const {
  TD_CHECK(group < groups_.size(), Index, "{} has {} groups, not group {}", type_, groups_.size(),
           group);
  return groups_[group].initial_lr.value_or(lr(group));
}
void Optimizer::set_initial_lr(double lr, size_t group) { groups_.at(group).initial_lr = lr; }

Tensor Optimizer::lr_tensor(size_t group) const {
  return groups_.at(group).numbers.value().select(0, static_cast<int64_t>(option_index("lr")));
}

Tensor Optimizer::step_count() const { return kept_[0].values.value().amax(); }

// ---- state of a parameter

void Optimizer::add_state(size_t i, const char* name, double fill) {
  const Spec spec = params_[i].cell()->spec();
  const bool later = context().slow & kDeferred;  // recipes begin on the host
  const DeviceGuard there(later ? cpu : spec.device);
  const Tensor value = full(spec.shape, fill, spec.dtype);
  add_state(i, name, value.to(spec.device));
}
void Optimizer::add_state(size_t i, const char* name, Tensor value) {
  Buffer& b = states_[i].emplace_back(name, Buffer(std::move(value))).second;
  const std::string& owner = params_[i].name();
  b.cell()->name = fmt::format("{}.{}", owner.empty() ? std::to_string(i) : owner, name);
}
void Optimizer::add_number(const char* name, double start) { kept_.push_back({name, start, {}}); }

Buffer* Optimizer::state_of(size_t i, const std::string& name) const {
  for (auto& [own, b] : states_[i])
    if (own == name) return &b;
  return nullptr;
}

Optimizer::Kept& Optimizer::kept_of(const std::string& name) {
  for (Kept& k : kept_)
    if (name == k.name) return k;
  TD_FAIL(Internal, "{} keeps no '{}'", type_, name);
}

}  // namespace tandem::optim
