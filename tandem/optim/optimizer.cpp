// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizer.h"

#include <fmt/format.h>

#include <unordered_set>

#include "tandem/base/math_prelude.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"

namespace tandem::optim {

Optimizer::Optimizer(std::vector<Param> params, double lr, const char* type)
    : params_(std::move(params)), type_(type) {
  TD_CHECK(!params_.empty(), Value,
           "{} got no parameters\nName the layers of your module with TD_REGISTER in its "
           "constructor.",
           type);
  TD_CHECK(lr >= 0, Value, "{} wants lr >= 0, got {}", type, lr);
  std::unordered_set<const Cell*> seen;
  for (size_t i = 0; i < params_.size(); ++i) {
    TD_CHECK(params_[i].defined(), Value, "{}: parameter {} is empty", type, i);
    TD_CHECK(seen.insert(params_[i].cell().get()).second, Value,
             "{}: parameter {} ('{}') comes twice", type, i, params_[i].name());
  }
  lr_ = Buffer(full({}, lr, DType::f64));
  step_ = Buffer(full({}, 0.0, DType::f64));
}

void Optimizer::add_state(const char* name, double fill) {
  State s{name, {}};
  for (const Param& p : params_) s.cells.emplace_back(full(p.shape(), fill, p.dtype()));
  states_.push_back(std::move(s));
}

Cell* Optimizer::state_of(const char* name, size_t i) const {
  for (const State& s : states_)
    if (s.name == name) return s.cells[i].cell().get();
  TD_FAIL(Internal, "{} has no state '{}'", type_, name);
}

void Optimizer::step(Where where) {
  NoGradGuard no_grad;
  try {
    step_.assign_(step_.value() + 1.0);
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].requires_grad()) continue;
      Tensor g = params_[i].grad();
      if (g.defined()) update(i, g, where);
    }
  } catch (const Error& e) {
    throw with_place(e, type_, where);
  }
}

void Optimizer::zero_grad() {
  for (const Param& p : params_) p.zero_grad();
}

double Optimizer::lr() const {
  TD_CHECK(!is_tracing(), Unsupported,
           "lr() as a number would be frozen into the trace\nUse lr_tensor(), or read it outside.");
  return lr_.value().item<double>();
}

void Optimizer::set_lr(double lr) { lr_.assign_(lr); }

Operand Optimizer::lr_operand() const {
  if (is_tracing()) return Operand(lr_.value());
  return Operand(lr_.value().item<double>());
}

Operand Optimizer::bias_correction(double beta) const {
  // The same function of the prelude in both, so that eager and traced steps have equal bits.
  if (is_tracing()) return Operand(1.0 - pow(beta, step_.value()));
  return Operand(1.0 - tdm_pow(beta, step_.value().item<double>()));
}

namespace {
std::string key_of(const Param& p, size_t i, const std::string& state) {
  return (p.name().empty() ? std::to_string(i) : p.name()) + "." + state;
}
}  // namespace

StateDict Optimizer::state_dict() const {
  StateDict d;
  d["step"] = step_.value().detach();
  d["lr"] = lr_.value().detach();
  for (const State& s : states_)
    for (size_t i = 0; i < params_.size(); ++i)
      d[key_of(params_[i], i, s.name)] = s.cells[i].value().detach();
  return d;
}

void Optimizer::load_state_dict(const StateDict& state) {
  std::vector<std::pair<Ref<Cell>, Tensor>> plan;
  std::unordered_set<std::string> known;
  auto take = [&](const std::string& name, const Buffer& b) {
    known.insert(name);
    const Tensor* v = state.find(name);
    TD_CHECK(v, Value, "{}: the state has no '{}'", type_, name);
    TD_CHECK(v->shape() == b.shape() && v->dtype() == b.dtype(), Shape,
             "{}: '{}' is {} {} here, {} {} in the state", type_, name, to_string(b.dtype()),
             b.shape().to_string(), to_string(v->dtype()), v->shape().to_string());
    plan.emplace_back(b.cell(), *v);
  };
  take("step", step_);
  take("lr", lr_);
  for (const State& s : states_)
    for (size_t i = 0; i < params_.size(); ++i) take(key_of(params_[i], i, s.name), s.cells[i]);
  for (const auto& [name, t] : state)
    TD_CHECK(known.count(name), Value, "{}: the state holds '{}', which no parameter has", type_,
             name);
  for (auto& [cell, v] : plan) cell->assign(v, Where{});
}

Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm, Where where) {
  NoGradGuard no_grad;
  Tensor total;
  for (const Param& p : params) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    Tensor s = sum(square(g, where), {}, false, where);
    total = total.defined() ? add(std::move(total), std::move(s), where) : s;
  }
  if (!total.defined()) return zeros({});
  Tensor norm = sqrt(std::move(total), where);
  Tensor factor = clamp_max(div(max_norm, norm + 1e-6, where), 1.0, where);
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(mul(std::move(g), factor, where));
  return norm;
}

void clip_grad_value_(const std::vector<Param>& params, double value, Where where) {
  NoGradGuard no_grad;
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(clamp(std::move(g), -value, value, where));
}

}  // namespace tandem::optim
