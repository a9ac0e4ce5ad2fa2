// SPDX-License-Identifier: Apache-2.0
// What each optimizer checks, keeps and computes from numbers alone; the elements are rows of
// ops/update.cpp.
#include "tandem/optim/optimizers.h"

#include <cmath>
#include <limits>

#include "tandem/graph/apply.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/update.h"
#include "tandem/ops/view.h"

namespace tandem::optim {
namespace {

// A 0-d result as a factor: read in eager, f64 in a trace. A dry run has no value to read; none of
// what it finds out depends on one.
Number read(const Tensor& t) {
  if (is_dry_run()) return Number(1.0);
  if (t.is_symbolic()) return Number(t.to(DType::f64));
  return Number(t.to(DType::f64).item<double>());
}

Number length(const Tensor& t) { return read(sqrt(sum(square(t)))); }

double flag_of(bool b) { return b ? 1 : 0; }

// The options that Adam and its kin share, with those of one's own before the last.
template <class Option, class O>
std::vector<Option> adam_options(const O& o, std::initializer_list<Option> own = {}) {
  std::vector<Option> all = {{"lr", o.lr},
                             {"beta1", o.betas[0]},
                             {"beta2", o.betas[1]},
                             {"eps", o.eps},
                             {"weight_decay", o.weight_decay}};
  all.insert(all.end(), own);
  all.push_back({"maximize", flag_of(o.maximize), true});
  return all;
}
template <class Options>
void check_betas(const Options& o) {
  o.check("beta1", 0, 1);
  o.check("beta2", 0, 1);
}
template <class Options>
void check_adam(const Options& o) {
  for (const char* name : {"lr", "eps", "weight_decay"}) o.check(name, 0);
  check_betas(o);
}

}  // namespace

// ---- SGD

SGD::SGD(ParamList params, SGDOptions o)
    : Optimizer("SGD", {{"lr", o.lr},
                        {"momentum", o.momentum},
                        {"dampening", o.dampening},
                        {"weight_decay", o.weight_decay},
                        {"nesterov", flag_of(o.nesterov), true},
                        {"maximize", flag_of(o.maximize), true}}) {
  step_is_optional();
  add_all(std::move(params));
}

void SGD::init(const Options& o, size_t i) {
  o.check("lr", 0);
  o.check("momentum", 0);
  o.check("weight_decay", 0);
  TD_CHECK(o["nesterov"] == 0 || (o["momentum"] > 0 && o["dampening"] == 0), Value,
           "SGD with nesterov wants momentum > 0 and dampening = 0");
  if (o["momentum"] != 0) add_state(i, "momentum_buffer");
}

void SGD::update(Update& u) {
  Number momentum = u.number("momentum");
  if (!u.has_state("momentum_buffer")) {
    TD_CHECK(momentum.is_tensor() || momentum.value() == 0, Value,
             "momentum is {}, but was 0 when the group was made\nMake the optimizer with a small "
             "momentum.",
             momentum.value());
    return u.run(op::sgd_plain_update, {}, {u.number("lr"), u.number("weight_decay")});
  }
  // The parameter's own first step: its buffer becomes the gradient.
  Number first = if_above(u.step(), 1.0, 0.0, 1.0);
  u.run(op::sgd_update, {"momentum_buffer"},
        {u.number("lr"), momentum, u.number("dampening"), u.number("weight_decay"),
         flag_of(u.flag("nesterov")), first});
}

// ---- Adam, AdamW

namespace detail {

AdamBase::AdamBase(ParamList params, const AdamOptions& o, bool decoupled, const char* type)
    : Optimizer(type, adam_options<Option>(o, {{"amsgrad", flag_of(o.amsgrad), true}})),
      decoupled_(decoupled) {
  add_all(std::move(params));
}

void AdamBase::init(const Options& o, size_t i) {
  check_adam(o);
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
  if (o["amsgrad"] != 0) add_state(i, "max_exp_avg_sq");
}

void AdamBase::update(Update& u) {
  auto step = [&](const OpDef& row, std::initializer_list<const char*> states) {
    u.run(row, states,
          {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("eps"),
           u.number("weight_decay"), u.bias_correction("beta1"), u.bias_correction("beta2")});
  };
  if (u.flag("amsgrad"))
    step(decoupled_ ? op::adamw_amsgrad_update : op::adam_amsgrad_update,
         {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
  else
    step(decoupled_ ? op::adamw_update : op::adam_update, {"exp_avg", "exp_avg_sq"});
}

}  // namespace detail

// ---- RMSprop, Adagrad, Adadelta, Adamax

RMSprop::RMSprop(ParamList params, RMSpropOptions o)
    : Optimizer("RMSprop", {{"lr", o.lr},
                            {"alpha", o.alpha},
                            {"eps", o.eps},
                            {"weight_decay", o.weight_decay},
                            {"momentum", o.momentum},
                            {"centered", flag_of(o.centered), true},
                            {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void RMSprop::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "alpha", "eps", "weight_decay", "momentum"}) o.check(name, 0);
  add_state(i, "square_avg");
  if (o["centered"] != 0) add_state(i, "grad_avg");
  if (o["momentum"] > 0) add_state(i, "momentum_buffer");
}

void RMSprop::update(Update& u) {
  bool mean = u.flag("centered"), buf = u.has_state("momentum_buffer");
  Number lr = u.number("lr"), alpha = u.number("alpha"), eps = u.number("eps"),
         decay = u.number("weight_decay"), momentum = u.number("momentum");
  if (mean && buf)
    u.run(op::rmsprop_centered_momentum_update, {"square_avg", "grad_avg", "momentum_buffer"},
          {lr, alpha, eps, decay, momentum});
  else if (mean)
    u.run(op::rmsprop_centered_update, {"square_avg", "grad_avg"}, {lr, alpha, eps, decay});
  else if (buf)
    u.run(op::rmsprop_momentum_update, {"square_avg", "momentum_buffer"},
          {lr, alpha, eps, decay, momentum});
  else
    u.run(op::rmsprop_update, {"square_avg"}, {lr, alpha, eps, decay});
}

Adagrad::Adagrad(ParamList params, AdagradOptions o)
    : Optimizer("Adagrad", {{"lr", o.lr},
                            {"lr_decay", o.lr_decay},
                            {"weight_decay", o.weight_decay},
                            {"initial_accumulator_value", o.initial_accumulator_value},
                            {"eps", o.eps},
                            {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void Adagrad::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"})
    o.check(name, 0);
  add_state(i, "sum", o["initial_accumulator_value"]);
}

void Adagrad::update(Update& u) {
  Number rate = u.number("lr") / ((u.step() - 1.0) * u.number("lr_decay") + 1.0);
  u.run(op::adagrad_update, {"sum"}, {rate, u.number("eps"), u.number("weight_decay")});
}

Adadelta::Adadelta(ParamList params, AdadeltaOptions o)
    : Optimizer("Adadelta", {{"lr", o.lr},
                             {"rho", o.rho},
                             {"eps", o.eps},
                             {"weight_decay", o.weight_decay},
                             {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void Adadelta::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "rho", "eps", "weight_decay"}) o.check(name, 0);
  TD_CHECK(o["rho"] <= 1, Value, "Adadelta wants rho in 0..1, got {}", o["rho"]);
  add_state(i, "square_avg");
  add_state(i, "acc_delta");
}

void Adadelta::update(Update& u) {
  u.run(op::adadelta_update, {"square_avg", "acc_delta"},
        {u.number("lr"), u.number("rho"), u.number("eps"), u.number("weight_decay")});
}

Adamax::Adamax(ParamList params, AdamaxOptions o) : Optimizer("Adamax", adam_options<Option>(o)) {
  add_all(std::move(params));
}

void Adamax::init(const Options& o, size_t i) {
  check_adam(o);
  add_state(i, "exp_avg");
  add_state(i, "exp_inf");
}

void Adamax::update(Update& u) {
  u.run(op::adamax_update, {"exp_avg", "exp_inf"},
        {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("eps"),
         u.number("weight_decay"), u.bias_correction("beta1")});
}

// ---- NAdam, RAdam

NAdam::NAdam(ParamList params, NAdamOptions o)
    : Optimizer("NAdam", adam_options<Option>(o, {{"momentum_decay", o.momentum_decay},
                                                  {"decoupled_weight_decay",
                                                   flag_of(o.decoupled_weight_decay), true}})) {
  add_number("mu_product", 1);
  add_all(std::move(params));
}

void NAdam::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "eps", "weight_decay", "momentum_decay"}) o.check(name, 0);
  check_betas(o);
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

void NAdam::update(Update& u) {
  Number t = u.step(), psi = u.number("momentum_decay"), beta1 = u.number("beta1");
  Number mu = beta1 * (1.0 - 0.5 * pow(0.96, t * psi));
  Number next = beta1 * (1.0 - 0.5 * pow(0.96, (t + 1.0) * psi));
  // PyTorch keeps the product in float32.
  Number product = as_f32(u.kept("mu_product") * as_f32(mu));
  u.keep("mu_product", product);
  u.run(op::nadam_update, {"exp_avg", "exp_avg_sq"},
        {u.number("lr"), beta1, u.number("beta2"), u.number("eps"), u.number("weight_decay"),
         flag_of(u.flag("decoupled_weight_decay")), u.bias_correction("beta2"), mu, next, product});
}

RAdam::RAdam(ParamList params, RAdamOptions o)
    : Optimizer("RAdam", adam_options<Option>(o, {{"decoupled_weight_decay",
                                                   flag_of(o.decoupled_weight_decay), true}})) {
  add_all(std::move(params));
}

void RAdam::init(const Options& o, size_t i) {
  check_adam(o);
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

void RAdam::update(Update& u) {
  Number t = u.step(), beta2 = u.number("beta2"), bias2 = u.bias_correction("beta2");
  Number most = 2.0 / (1.0 - beta2) - 1.0;
  Number length = most - 2.0 * t * pow(beta2, t) / bias2;
  Number rect =
      sqrt((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length));
  u.run(op::radam_update, {"exp_avg", "exp_avg_sq"},
        {u.number("lr"), u.number("beta1"), beta2, u.number("eps"), u.number("weight_decay"),
         flag_of(u.flag("decoupled_weight_decay")), u.bias_correction("beta1"), bias2,
         if_above(length, 5.0, rect, 0.0)});
}

// ---- Rprop, ASGD, SparseAdam

Rprop::Rprop(ParamList params, RpropOptions o)
    : Optimizer("Rprop", {{"lr", o.lr},
                          {"eta_minus", o.etas[0]},
                          {"eta_plus", o.etas[1]},
                          {"step_size_min", o.step_sizes[0]},
                          {"step_size_max", o.step_sizes[1]},
                          {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void Rprop::init(const Options& o, size_t i) {
  o.check("lr", 0);
  TD_CHECK(o["eta_minus"] > 0 && o["eta_minus"] < 1 && o["eta_plus"] > 1, Value,
           "Rprop wants etas with 0 < first < 1 < second, got {} and {}", o["eta_minus"],
           o["eta_plus"]);
  add_state(i, "prev");
  add_state(i, "step_size", o["lr"]);
}

void Rprop::update(Update& u) {
  u.run(op::rprop_update, {"prev", "step_size"},
        {u.number("eta_minus"), u.number("eta_plus"), u.number("step_size_min"),
         u.number("step_size_max")});
}

ASGD::ASGD(ParamList params, ASGDOptions o)
    : Optimizer("ASGD", {{"lr", o.lr},
                         {"lambd", o.lambd},
                         {"alpha", o.alpha},
                         {"t0", o.t0},
                         {"weight_decay", o.weight_decay},
                         {"maximize", flag_of(o.maximize), true}}) {
  add_number("eta", std::numeric_limits<float>::quiet_NaN());  // none yet: the group's lr
  add_number("mu", 1);
  add_all(std::move(params));
}

void ASGD::init(const Options& o, size_t i) {
  o.check("lr", 0);
  o.check("weight_decay", 0);
  add_state(i, "ax");
}

void ASGD::update(Update& u) {
  Number t = u.step(), lr = u.number("lr"), lambd = u.number("lambd");
  // PyTorch keeps both in float32.
  Number eta = if_above(t, 1.0, u.kept("eta"), as_f32(lr));
  u.run(op::asgd_update, {"ax"}, {lambd, u.number("weight_decay"), eta, u.kept("mu")});
  u.keep("eta", as_f32(lr / pow(lambd * lr * t + 1.0, u.number("alpha"))));
  u.keep("mu", as_f32(1.0 / max(t - u.number("t0"), 1.0)));
}

SparseAdam::SparseAdam(ParamList params, SparseAdamOptions o)
    : Optimizer("SparseAdam", {{"lr", o.lr},
                               {"beta1", o.betas[0]},
                               {"beta2", o.betas[1]},
                               {"eps", o.eps},
                               {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void SparseAdam::init(const Options& o, size_t i) {
  o.check("lr", 0);
  check_betas(o);
  o.check("eps", 0);
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

void SparseAdam::update(Update& u) {
  u.run(op::sparse_adam_update, {"exp_avg", "exp_avg_sq"},
        {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("eps"),
         u.bias_correction("beta1"), u.bias_correction("beta2")});
}

// ---- Adafactor

Adafactor::Adafactor(ParamList params, AdafactorOptions o)
    : Optimizer("Adafactor", {{"lr", o.lr},
                              {"beta2_decay", o.beta2_decay},
                              {"eps1", o.eps1.value_or(-1)},
                              {"eps2", o.eps2},
                              {"d", o.d},
                              {"weight_decay", o.weight_decay},
                              {"maximize", flag_of(o.maximize), true}}) {
  add_all(std::move(params));
}

void Adafactor::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "eps2", "weight_decay"}) o.check(name, 0);
  o.check("d", 1);
  TD_CHECK(o["beta2_decay"] <= 0, Value, "Adafactor wants beta2_decay <= 0, got {}",
           o["beta2_decay"]);
  const Param& p = params_of(i);
  if (p.dim() < 2) return add_state(i, "variance");
  Shape row = p.shape(), column = row;
  row[p.dim() - 1] = 1;
  column[p.dim() - 2] = 1;
  add_state(i, "row_var", zeros(row, p.dtype()));
  add_state(i, "col_var", zeros(column, p.dtype()));
}

void Adafactor::update(Update& u) {
  const Tensor& g = u.grad;
  double default_eps = g.dtype() == DType::f64    ? std::numeric_limits<double>::epsilon()
                       : g.dtype() == DType::f32  ? std::numeric_limits<float>::epsilon()
                       : g.dtype() == DType::bf16 ? 0.0078125
                                                  : 0.0009765625;
  Number t = u.step(), lr = u.number("lr");
  Number eps1 = if_above(u.number("eps1"), -0.5, u.number("eps1"), default_eps);
  Number weight = pow(t, u.number("beta2_decay"));
  double root = std::sqrt(static_cast<double>(g.numel()));
  Number alpha = max(u.number("eps2"), length(u.param()) / root) * min(lr, 1.0 / sqrt(t));
  Tensor estimate;
  if (g.dim() > 1) {
    Tensor row = lerp(u.state("row_var"), mean(square(g), {-1}, true), weight.operand());
    Tensor column = lerp(u.state("col_var"), mean(square(g), {-2}, true), weight.operand());
    u.set_state("row_var", row);
    u.set_state("col_var", column);
    estimate = matmul(row, column) / clamp_min(mean(row, {-2}, true), eps1.operand());
  } else {
    estimate = lerp(u.state("variance"), square(g), weight.operand());
    u.set_state("variance", estimate);
  }
  Tensor direction = rsqrt(clamp_min(estimate, (eps1 * eps1).operand())) * g;
  Number size = max(1.0, length(direction) / (root * u.number("d")));
  u.run(op::decoupled_update, {}, {lr, u.number("weight_decay"), alpha / size}, direction);
}

// ---- Lion, LAMB, LARS

Lion::Lion(ParamList params, LionOptions o)
    : Optimizer("Lion", {{"lr", o.lr},
                         {"beta1", o.betas[0]},
                         {"beta2", o.betas[1]},
                         {"weight_decay", o.weight_decay},
                         {"maximize", flag_of(o.maximize), true}}) {
  step_is_optional();
  add_all(std::move(params));
}

void Lion::init(const Options& o, size_t i) {
  o.check("lr", 0);
  check_betas(o);
  o.check("weight_decay", 0);
  add_state(i, "exp_avg");
}

void Lion::update(Update& u) {
  u.run(op::lion_update, {"exp_avg"},
        {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("weight_decay")});
}

LAMB::LAMB(ParamList params, LAMBOptions o) : Optimizer("LAMB", adam_options<Option>(o)) {
  add_all(std::move(params));
}

void LAMB::init(const Options& o, size_t i) {
  check_adam(o);
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

namespace {
// |p| / |d|, or 1 where one of them is 0.
Number trust_ratio(const Number& p, const Number& d) {
  return if_above(p, 0.0, if_above(d, 0.0, p / d, 1.0), 1.0);
}
}  // namespace

void LAMB::update(Update& u) {
  Tensor p = u.param();
  Operand in[] = {Operand(p),
                  Operand(u.grad),
                  Operand(u.state("exp_avg")),
                  Operand(u.state("exp_avg_sq")),
                  u.number("beta1").operand(),
                  u.number("beta2").operand(),
                  u.number("eps").operand(),
                  u.number("weight_decay").operand(),
                  u.bias_correction("beta1").operand(),
                  u.bias_correction("beta2").operand()};
  Tensor results[kMaxOpOuts];
  apply(op::lamb_direction, nullptr, in, results, u.where);
  u.set_state("exp_avg", results[1]);
  u.set_state("exp_avg_sq", results[2]);
  Number trust = trust_ratio(length(p), length(results[0]));
  u.run(op::sgd_plain_update, {}, {u.number("lr") * trust, 0.0}, results[0]);
}

LARS::LARS(ParamList params, LARSOptions o)
    : Optimizer("LARS", {{"lr", o.lr},
                         {"momentum", o.momentum},
                         {"dampening", o.dampening},
                         {"weight_decay", o.weight_decay},
                         {"trust_coefficient", o.trust_coefficient},
                         {"eps", o.eps},
                         {"nesterov", flag_of(o.nesterov), true},
                         {"maximize", flag_of(o.maximize), true}}) {
  step_is_optional();
  add_all(std::move(params));
}

void LARS::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "momentum", "weight_decay", "trust_coefficient", "eps"})
    o.check(name, 0);
  TD_CHECK(o["nesterov"] == 0 || (o["momentum"] > 0 && o["dampening"] == 0), Value,
           "LARS with nesterov wants momentum > 0 and dampening = 0");
  add_state(i, "momentum_buffer");
}

void LARS::update(Update& u) {
  Number p = length(u.param()), g = length(u.grad);
  Number ratio =
      u.number("trust_coefficient") * p / (g + u.number("weight_decay") * p + u.number("eps"));
  Number trust = if_above(p, 0.0, if_above(g, 0.0, ratio, 1.0), 1.0);
  u.run(op::lars_update, {"momentum_buffer"},
        {u.number("lr"), u.number("momentum"), u.number("dampening"), u.number("weight_decay"),
         flag_of(u.flag("nesterov")), if_above(u.step(), 1.0, 0.0, 1.0), trust});
}

// ---- Muon

Muon::Muon(ParamList params, MuonOptions o)
    : Optimizer("Muon", {{"lr", o.lr},
                         {"weight_decay", o.weight_decay},
                         {"momentum", o.momentum},
                         {"eps", o.eps},
                         {"nesterov", flag_of(o.nesterov), true}}),
      o_(o) {
  step_is_optional();
  TD_CHECK(o.ns_steps >= 0 && o.ns_steps < 100, Value, "Muon wants ns_steps in 0..99, got {}",
           o.ns_steps);
  TD_CHECK(o.adjust_lr_fn == "original" || o.adjust_lr_fn == "match_rms_adamw", Value,
           "Muon knows adjust_lr_fn \"original\" and \"match_rms_adamw\", got \"{}\"",
           o.adjust_lr_fn);
  add_all(std::move(params));
}

void Muon::init(const Options& o, size_t i) {
  for (const char* name : {"lr", "momentum", "weight_decay"}) o.check(name, 0);
  const Param& p = params_of(i);
  TD_CHECK(p.dim() == 2, Shape,
           "Muon wants matrices, parameter {} ('{}') is {}\nGive the others to AdamW.", i, p.name(),
           p.shape().to_string());
  add_state(i, "momentum_buffer");
}

void Muon::update(Update& u) {
  const Tensor& g = u.grad;
  Number momentum = u.number("momentum");
  Tensor buf = lerp(u.state("momentum_buffer"), g, (1.0 - momentum).operand());
  u.set_state("momentum_buffer", buf);
  Tensor x = u.flag("nesterov") ? lerp(g, buf, momentum.operand()) : buf;
  double rows = static_cast<double>(g.size(0)), columns = static_cast<double>(g.size(1));
  // Newton-Schulz in bf16: x -> a x + (b A + c A^2) x, A = x x^T.
  x = x.to(DType::bf16);
  if (rows > columns) x = x.t();
  x = x / clamp_min(norm(x), u.number("eps").operand());
  auto [a, b, c] = o_.ns_coefficients;
  for (int64_t k = 0; k < o_.ns_steps; ++k) {
    Tensor gram = matmul(x, x.t());
    Tensor update = addmm(gram, gram, gram, b, c);
    x = addmm(x, update, x, a, 1);
  }
  if (rows > columns) x = x.t();
  double ratio = o_.adjust_lr_fn == "original" ? std::sqrt(std::max(1.0, rows / columns))
                                               : 0.2 * std::sqrt(std::max(rows, columns));
  u.run(op::decoupled_update, {},
        {u.number("lr"), u.number("weight_decay"), u.number("lr") * ratio},
        x.to(g.dtype()).contiguous());
}

}  // namespace tandem::optim
