// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/scheduler.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/ops/view/create.h"
#include "tandem/optim/schedule_state_internal.h"

namespace tandem::optim {
namespace detail {

std::vector<double> rates(const Optimizer& o) {
  std::vector<double> v;
  for (size_t g = 0; g < o.num_groups(); ++g) v.push_back(o.lr(g));
  return v;
}

void put(StateDict& d, const std::string& name, double v) { d[name] = full({}, v, DType::f64); }

std::vector<double> get(const StateDict& d, const char* type, const std::string& name, size_t n) {
  const Tensor* v = d.find(name);
  TD_CHECK(v, Value, "{}: the state has no '{}'", type, name);
  TD_CHECK(v->numel() == static_cast<int64_t>(n), Shape, "{}: '{}' expects {} numbers, has {}",
           type, name, n, v->numel());
  return v->to_vector<double>();
}

void check_names(const StateDict& d, const char* type,
                 const std::unordered_set<std::string>& known) {
  for (const auto& [name, v] : d)
    TD_CHECK(known.count(name), Value, "{}: the state holds '{}', which is not known here", type,
             name);
}

void want(bool good, const char* type, const char* what, double got) {
  TD_CHECK(good, Value, "{} expects {}, got {}", type, what, got);
}

double cosine(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}
double linear(double from, double to, double part) { return from + (to - from) * part; }

const char* momentum_of(const Optimizer& o, const char* type) {
  TD_CHECK(o.has_option("momentum") || o.has_option("beta1"), Value,
           "{} with cycle_momentum expects an optimizer with momentum or betas, {} has none\n"
           "Set cycle_momentum = false.",
           type, o.type());
  return o.has_option("momentum") ? "momentum" : "beta1";
}

}  // namespace detail

using namespace detail;

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g) {
    optimizer.set_initial_lr(optimizer.initial_lr(g), g);
    base_lrs_.push_back(optimizer.initial_lr(g));
  }
}

void LRScheduler::set(bool closed_form) {
  TD_CHECK(base_lrs_.size() == optimizer_->num_groups(), Value,
           "{}: the optimizer has {} groups, {} when the schedule was made\nAdd groups first.",
           type_, optimizer_->num_groups(), base_lrs_.size());
  std::vector<double> lr = rates(*optimizer_);
  for (size_t g = 0; g < lr.size(); ++g) lr[g] = closed_form ? closed(g, lr[g]) : next(g, lr[g]);
  for (size_t g = 0; g < lr.size(); ++g) optimizer_->set_lr(lr[g], g);
}

void LRScheduler::step() {
  ++step_count_;
  ++epoch_;
  try {
    set(false);
  } catch (...) {
    --step_count_;
    --epoch_;
    throw;
  }
}

void LRScheduler::start() {
  step_count_ = 0;
  step();
}

void LRScheduler::restart() {
  epoch_ = 0;
  set(true);
}

std::vector<double> LRScheduler::get_last_lr() const { return rates(*optimizer_); }

std::vector<double> LRScheduler::spread(const PerGroup& v, const char* name) const {
  size_t n = optimizer_->num_groups();
  if (v.values.size() == 1) return std::vector<double>(n, v.values[0]);
  TD_CHECK(v.values.size() == n, Value, "{} expects {} of one number or {}, got {}", type_, name, n,
           v.values.size());
  return v.values;
}

StateDict LRScheduler::state_dict() const {
  StateDict d;
  put(d, "last_epoch", static_cast<double>(epoch_));
  put(d, "_step_count", static_cast<double>(step_count_));
  d["base_lrs"] = tensor(base_lrs_, {base_lrs_.size()});
  for (auto& [name, v] : const_cast<LRScheduler*>(this)->numbers()) put(d, name, *v);
  return d;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  double epoch = get(state, type_, "last_epoch", 1)[0];
  double count = get(state, type_, "_step_count", 1)[0];
  std::vector<double> base = get(state, type_, "base_lrs", base_lrs_.size());
  std::vector<std::pair<double*, double>> plan;
  std::unordered_set<std::string> known = {"last_epoch", "_step_count", "base_lrs"};
  for (auto& [name, v] : numbers()) {
    plan.emplace_back(v, get(state, type_, name, 1)[0]);
    known.insert(name);
  }
  check_names(state, type_, known);
  epoch_ = static_cast<int64_t>(epoch);
  step_count_ = static_cast<int64_t>(count);
  base_lrs_ = base;
  for (auto& [to, v] : plan) *to = v;
}

}  // namespace tandem::optim
