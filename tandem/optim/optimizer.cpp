// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tandem/graph/apply.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/view.h"

namespace tandem::optim {

// ---- groups

ParamList::ParamList(std::vector<Param> params) { groups.push_back({std::move(params)}); }
ParamList::ParamList(std::initializer_list<Param> params) : ParamList(std::vector<Param>(params)) {}

namespace {

// Calls see(name, value) for every option that the group gives.
template <class See>
void for_each_given(const ParamGroup& g, See see) {
  const auto one = [&](const char* name, const auto& v) {
    if (v) see(name, static_cast<double>(*v));
  };
  one("lr", g.lr);
  if (g.betas) {
    see("beta1", (*g.betas)[0]);
    see("beta2", (*g.betas)[1]);
  }
  one("eps", g.eps);
  one("weight_decay", g.weight_decay);
  one("momentum", g.momentum);
  one("dampening", g.dampening);
  one("alpha", g.alpha);
  one("rho", g.rho);
  one("lr_decay", g.lr_decay);
  one("momentum_decay", g.momentum_decay);
  one("lambd", g.lambd);
  one("t0", g.t0);
  one("trust_coefficient", g.trust_coefficient);
  one("nesterov", g.nesterov);
  one("amsgrad", g.amsgrad);
  one("centered", g.centered);
  one("maximize", g.maximize);
}

Tensor numbers_of(const std::vector<double>& v) { return tensor(v, {v.size()}); }

}  // namespace

double Optimizer::Options::operator[](const char* name) const {
  for (const Option& o : all_)
    if (std::string_view(o.name) == name) return o.value;
  TD_FAIL(Internal, "{} has no option '{}'", type_, name);
}

void Optimizer::Options::check(const char* name, double low, double high) const {
  double v = (*this)[name];
  if (high > 1e299)
    TD_CHECK(v >= low, Value, "{} wants {} >= {}, got {}", type_, name, low, v);
  else
    TD_CHECK(v >= low && v < high, Value, "{} wants betas in [{}, {}), got {}", type_, low, high,
             v);
}

Optimizer::Optimizer(const char* type, std::vector<Option> options)
    : type_(type), defaults_(std::move(options)) {
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
    TD_CHECK(seen.insert(p.cell().get()).second, Value, "{}: parameter {} ('{}') comes twice",
             type_, i, p.name());
  }
  for_each_given(group, [&](const char* name, double) {
    TD_CHECK(has_option(name), Value, "{} has no option '{}'\nLeave it out of the group.", type_,
             name);
  });
}

void Optimizer::add_param_group(ParamGroup group) {
  TD_CHECK(!is_tracing(), Unsupported, "{}: a group cannot be added inside a trace", type_);
  check_new(group);
  Group g{{}, defaults_, {}, {}};
  for_each_given(group, [&](std::string_view name, double v) {
    for (Option& o : g.options)
      if (o.name == name) o.value = v;
  });
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
    if (!o.flag) all += (all.empty() ? "" : ", ") + std::string(o.name);
  TD_FAIL(Value, "{} has no option '{}'\nIt has {}.", type_, name, all);
}

bool Optimizer::has_option(const std::string& name) const {
  return std::any_of(defaults_.begin(), defaults_.end(),
                     [&](const Option& o) { return o.name == name; });
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

// ---- state

void Optimizer::add_state(size_t i, const char* name, double fill) {
  add_state(i, name, full(params_[i].shape(), fill, params_[i].dtype()));
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

// ---- one step

struct Optimizer::Running {
  bool traced = is_tracing();
  std::vector<std::vector<double>> numbers, kept;    // eager: by group, by number
  std::vector<Tensor> number_tensors, kept_tensors;  // in a trace
  std::vector<std::map<size_t, Tensor>> kept_new;    // in a trace: by number, by parameter
  std::vector<char> kept_changed;
  std::map<std::pair<size_t, std::string>, Tensor> corrections;  // in a trace, for all parameters
  std::map<std::pair<size_t, std::string>, Tensor> selected;
  struct {
    double beta = -1, step = -1, value = 0;
  } last;
  std::vector<CellUpdate> batch;
};

// Read groups' and kept numbers; count the step of every parameter that has a gradient.
void Optimizer::begin_step(Running& run, const std::vector<char>& live) const {
  for (const Group& g : groups_) {
    Tensor v = g.numbers.value();
    if (run.traced)
      run.number_tensors.push_back(v);
    else
      run.numbers.push_back(v.to_vector<double>());
  }
  for (const Kept& k : kept_) {
    Tensor v = k.values.value();
    if (run.traced)
      run.kept_tensors.push_back(v);
    else
      run.kept.push_back(v.to_vector<double>());
  }
  run.kept_changed.assign(kept_.size(), 0);
  run.kept_changed[0] = 1;
  run.kept_new.resize(kept_.size());
  if (!run.traced) {
    for (size_t i = 0; i < live.size(); ++i) run.kept[0][i] += live[i];
    run.batch.reserve(params_.size());
    return;
  }
  bool all = std::all_of(live.begin(), live.end(), [](char c) { return c; });
  Tensor made =
      all ? full({}, 1.0, DType::f64) : numbers_of(std::vector<double>(live.begin(), live.end()));
  run.kept_tensors[0] = run.kept_tensors[0] + made;
}

void Optimizer::store_kept(Running& run, Where where) {
  for (size_t k = 0; k < kept_.size(); ++k) {
    if (!run.kept_changed[k]) continue;
    if (!run.traced) {
      kept_[k].values.assign_(numbers_of(run.kept[k]), where);
      continue;
    }
    Tensor v = run.kept_tensors[k];
    if (!run.kept_new[k].empty()) {
      std::vector<Tensor> parts;
      for (size_t i = 0; i < params_.size(); ++i) {
        auto at = run.kept_new[k].find(i);
        parts.push_back(at != run.kept_new[k].end() ? at->second
                                                    : v.select(0, static_cast<int64_t>(i)));
      }
      v = stack(parts, 0);
    }
    kept_[k].values.assign_(v, where);
  }
}

void Optimizer::step_all(Where where) {
  Running run;
  std::vector<char> live(params_.size());
  for (size_t i = 0; i < params_.size(); ++i)
    live[i] = params_[i].requires_grad() && params_[i].grad().defined();
  begin_step(run, live);
  running_ = &run;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!live[i]) continue;
    Update u(*this);
    u.index = i;
    u.group_ = group_of_[i];
    u.where = where;
    u.grad = params_[i].grad();
    if (has_option("maximize") && u.flag("maximize")) u.grad = neg(u.grad, where);
    update(u);
  }
  update_many_(run.batch, where);
  store_kept(run, where);
  if (Trace* t = cell_trace())
    for (size_t i = 0; i < params_.size(); ++i)
      if (live[i]) t->consume_grad(*params_[i].cell()->slot());
}

void Optimizer::step(Where where) {
  NoGradGuard no_grad;
  struct Finally {
    Running*& running;
    ~Finally() { running = nullptr; }
  } finally{running_};
  try {
    step_all(where);
  } catch (const Error& e) {
    throw with_place(e, type_, where);
  }
}

Tensor Optimizer::step(const std::function<Tensor()>& closure, Where where) {
  Tensor loss;
  {
    EnableGradGuard grad;
    loss = closure();
  }
  step(where);
  return loss;
}

void Optimizer::zero_grad() {
  for (const Param& p : params_) p.zero_grad();
}

const Param& Optimizer::Update::param() const { return o_.params_[index]; }

Number Optimizer::Update::number(const char* name) const {
  Running& run = *o_.running_;
  size_t k = o_.option_index(name);
  if (!run.traced) return run.numbers[group_][k];
  Tensor& t = run.selected[{group_, name}];
  if (!t.defined()) t = run.number_tensors[group_].select(0, static_cast<int64_t>(k));
  return Number(t);
}

bool Optimizer::Update::flag(const char* name) const {
  return Options(o_.groups_[group_].options, o_.type_)[name] != 0;
}

Number Optimizer::Update::kept(const char* name) const {
  Running& run = *o_.running_;
  size_t k = static_cast<size_t>(&o_.kept_of(name) - o_.kept_.data());
  if (!run.traced) return run.kept[k][index];
  return Number(run.kept_tensors[k].select(0, static_cast<int64_t>(index)));
}

void Optimizer::Update::keep(const char* name, const Number& v) const {
  Running& run = *o_.running_;
  size_t k = static_cast<size_t>(&o_.kept_of(name) - o_.kept_.data());
  run.kept_changed[k] = 1;
  if (!run.traced)
    run.kept[k][index] = v.value();
  else
    run.kept_new[k][index] = v.is_tensor() ? v.tensor() : full({}, v.value(), DType::f64);
}

Number Optimizer::Update::step() const { return kept("step"); }

Number Optimizer::Update::bias_correction(const char* beta) const {
  Running& run = *o_.running_;
  if (!run.traced) {
    double b = number(beta).value(), t = run.kept[0][index];
    if (run.last.beta == b && run.last.step == t) return run.last.value;
    run.last = {b, t, 1.0 - tdm_pow(b, t)};
    return run.last.value;
  }
  // Of all parameters at once: one pow and a select for each.
  Tensor& all = run.corrections[{group_, beta}];
  if (!all.defined()) all = 1.0 - tandem::pow(number(beta).operand(), run.kept_tensors[0]);
  return Number(all.select(0, static_cast<int64_t>(index)));
}

Tensor Optimizer::Update::state(const char* name) const {
  Buffer* b = o_.state_of(index, name);
  return b ? b->value() : Tensor();
}

bool Optimizer::Update::has_state(const char* name) const {
  return o_.state_of(index, name) != nullptr;
}

void Optimizer::Update::set_state(const char* name, const Tensor& v) const {
  Buffer* b = o_.state_of(index, name);
  TD_ASSERT(b);
  b->cell()->assign(v, where);
}

void Optimizer::Update::run(const OpDef& row, std::initializer_list<const char*> states,
                            std::initializer_list<Number> numbers, const Tensor& g) const {
  SmallVec<Cell*, 5> cells;
  cells.push_back(param().cell().get());
  for (const char* s : states) {
    Buffer* b = o_.state_of(index, s);
    TD_ASSERT(b);
    cells.push_back(b->cell().get());
  }
  run_cells(row, std::move(cells), g, numbers);
}

void Optimizer::Update::run_states(const OpDef& row, std::initializer_list<const char*> states,
                                   std::initializer_list<Number> numbers) const {
  SmallVec<Cell*, 5> cells;
  for (const char* s : states) cells.push_back(o_.state_of(index, s)->cell().get());
  run_cells(row, std::move(cells), grad, numbers);
}

void Optimizer::Update::run_cells(const OpDef& row, SmallVec<Cell*, 5> cells, const Tensor& g,
                                  std::initializer_list<Number> numbers) const {
  if (!o_.running_->traced) {
    CellUpdate& u = o_.running_->batch.emplace_back();
    u.row = &row;
    u.cells = std::move(cells);
    u.other = g;
    for (const Number& n : numbers) u.numbers.push_back(n.value());
    return;
  }
  std::vector<Operand> others;
  others.reserve(numbers.size() + 1);
  others.emplace_back(g, where);
  for (const Number& n : numbers) others.push_back(n.operand());
  update_(row, nullptr, {cells.data(), cells.size()}, others, where);
}

// ---- state in and out

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
std::string group_key(size_t g, const char* name) {
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

  // By this parameter's name, or as PyTorch counts it.
  const Tensor* find(size_t i, const char* own) {
    for (const std::string& name : {keys[i] + own, fmt::format("state.{}.{}", i, own)}) {
      known.insert(name);
      if (const Tensor* v = state.find(name)) return v;
    }
    return nullptr;
  }
  double number(const std::string& name, const Tensor* v) const {
    TD_CHECK(v, Value, "{}: the state has no '{}'", o.type_, name);
    TD_CHECK(v->numel() == 1, Shape, "{}: '{}' is one number here, {} in the state", o.type_, name,
             v->shape().to_string());
    return v->to_vector<double>()[0];
  }
  void moment(size_t i, const std::string& name, const Buffer& b) {
    const Tensor* v = find(i, name.c_str());
    TD_CHECK(v, Value, "{}: the state has no '{}'", o.type_, keys[i] + name);
    TD_CHECK(v->shape() == b.shape() && v->dtype() == b.dtype(), Shape,
             "{}: '{}' is {} {} here, {} {} in the state", o.type_, keys[i] + name,
             to_string(b.dtype()), b.shape().to_string(), to_string(v->dtype()),
             v->shape().to_string());
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
    if (const Tensor* members = state.find(group_key(g, "params")))
      TD_CHECK(members->numel() == static_cast<int64_t>(n), Value,
               "{}: group {} has {} parameters here, {} in the state", o.type_, g, n,
               members->numel());
    return numbers;
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
  for (const auto& [name, t] : state)
    TD_CHECK(read.known.count(name), Value, "{}: the state holds '{}', which no parameter has",
             type_, name);
  for (size_t k = 0; k < kept_.size(); ++k)
    read.plan.emplace_back(kept_[k].values.cell(), numbers_of(kept[k]));
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t k = 0; k < numbers[g].size(); ++k)
      if (groups_[g].options[k].flag) groups_[g].options[k].value = numbers[g][k];
    if (const Tensor* v = state.find(group_key(g, "initial_lr")))
      groups_[g].initial_lr = read.number("initial_lr", v);
    read.plan.emplace_back(groups_[g].numbers.cell(), numbers_of(numbers[g]));
  }
  for (auto& [cell, v] : read.plan) cell->assign(v, Where{});
  load_extra_state(state, more, true);
}

// ---- clipping

Tensor get_total_norm(const std::vector<Param>& params, double p, Where where) {
  NoGradGuard no_grad;
  bool largest = std::isinf(p);
  Tensor total;
  for (const Param& q : params) {
    Tensor g = q.grad();
    if (!g.defined() || (!g.is_symbolic() && g.numel() == 0)) continue;
    Tensor s = largest  ? amax(abs(g, where), {}, false, where)
               : p == 2 ? sum(square(g, where), {}, false, where)
                        : sum(pow(abs(g, where), p, where), {}, false, where);
    if (total.defined())
      total = largest ? maximum(std::move(total), std::move(s), where)
                      : add(std::move(total), std::move(s), where);
    else
      total = s;
  }
  if (!total.defined()) return zeros({});
  if (largest) return total;
  return p == 2 ? sqrt(std::move(total), where) : pow(std::move(total), 1 / p, where);
}

Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm, double norm_type,
                       bool error_if_nonfinite, Where where) try {
  NoGradGuard no_grad;
  TD_CHECK(norm_type > 0, Value, "norm_type is {}, wants more than 0", norm_type);
  Tensor norm = get_total_norm(params, norm_type, where);
  if (error_if_nonfinite) {
    TD_CHECK(!is_tracing(), Unsupported,
             "error_if_nonfinite reads the norm, which has no value in a trace\nLeave it out.");
    TD_CHECK(std::isfinite(norm.to_vector<double>()[0]), Value,
             "the total norm of the gradients is {}\nLook for the first one with "
             "DetectAnomalyGuard.",
             norm.to_vector<double>()[0]);
  }
  Tensor factor = clamp_max(div(max_norm, norm + 1e-6, where), 1.0, where);
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(mul(std::move(g), factor, where));
  return norm;
} catch (const Error& e) {
  if (!e.op().empty() && e.where().file) throw;
  throw with_place(e, "clip_grad_norm_", where);
}

void clip_grad_value_(const std::vector<Param>& params, double value, Where where) {
  NoGradGuard no_grad;
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(clamp(std::move(g), -value, value, where));
}

}  // namespace tandem::optim
