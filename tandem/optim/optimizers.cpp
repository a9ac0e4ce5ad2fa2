// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers.h"

#include "tandem/graph/trace.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/update.h"

namespace tandem::optim {
namespace {

void check(bool good, const char* type, const char* what, double got) {
  TD_CHECK(good, Value, "{} wants {}, got {}", type, what, got);
}

Tensor directed(const Tensor& grad, bool maximize, Where where) {
  return maximize ? neg(grad, where) : grad;
}

// One row over the parameter's and its moments' cells.
template <class... Numbers>
void run(const OpDef& row, std::initializer_list<Cell*> cells, const Tensor& grad, Where where,
         Numbers&&... numbers) {
  Operand others[] = {Operand(grad, where), Operand(std::forward<Numbers>(numbers))...};
  std::vector<Cell*> list(cells);
  update_(row, nullptr, list, others, where);
}

}  // namespace

SGD::SGD(std::vector<Param> params, SGDOptions o)
    : Optimizer(std::move(params), o.lr, "SGD"), o_(o) {
  check(o.momentum >= 0, "SGD", "momentum >= 0", o.momentum);
  check(o.weight_decay >= 0, "SGD", "weight_decay >= 0", o.weight_decay);
  TD_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), Value,
           "SGD with nesterov wants momentum > 0 and dampening = 0");
  if (o.momentum != 0) add_state("momentum_buffer");
}

void SGD::update(size_t i, const Tensor& grad, Where where) {
  Tensor g = directed(grad, o_.maximize, where);
  if (o_.momentum == 0)
    return run(op::sgd_plain_update, {cell_of(i)}, g, where, lr_operand(), o_.weight_decay);
  Operand first = is_tracing() ? Operand((step_count() == 1.0).to(DType::f64))
                               : Operand(step_count().item<double>() == 1.0 ? 1.0 : 0.0);
  run(op::sgd_update, {cell_of(i), state_of("momentum_buffer", i)}, g, where, lr_operand(),
      o_.momentum, o_.dampening, o_.weight_decay, o_.nesterov ? 1.0 : 0.0, std::move(first));
}

namespace detail {

AdamBase::AdamBase(std::vector<Param> params, const AdamOptions& o, bool decoupled,
                   const char* type)
    : Optimizer(std::move(params), o.lr, type), o_(o), decoupled_(decoupled) {
  for (double b : o.betas) check(b >= 0 && b < 1, type, "betas in [0, 1)", b);
  check(o.eps >= 0, type, "eps >= 0", o.eps);
  check(o.weight_decay >= 0, type, "weight_decay >= 0", o.weight_decay);
  add_state("exp_avg");
  add_state("exp_avg_sq");
  if (o.amsgrad) add_state("max_exp_avg_sq");
}

void AdamBase::update(size_t i, const Tensor& grad, Where where) {
  Tensor g = directed(grad, o_.maximize, where);
  Cell *p = cell_of(i), *m = state_of("exp_avg", i), *v = state_of("exp_avg_sq", i);
  auto step = [&](const OpDef& row, std::initializer_list<Cell*> cells) {
    run(row, cells, g, where, lr_operand(), o_.betas[0], o_.betas[1], o_.eps, o_.weight_decay,
        bias_correction(o_.betas[0]), bias_correction(o_.betas[1]));
  };
  if (o_.amsgrad)
    step(decoupled_ ? op::adamw_amsgrad_update : op::adam_amsgrad_update,
         {p, m, v, state_of("max_exp_avg_sq", i)});
  else
    step(decoupled_ ? op::adamw_update : op::adam_update, {p, m, v});
}

}  // namespace detail

RMSprop::RMSprop(std::vector<Param> params, RMSpropOptions o)
    : Optimizer(std::move(params), o.lr, "RMSprop"), o_(o) {
  check(o.alpha >= 0, "RMSprop", "alpha >= 0", o.alpha);
  check(o.eps >= 0, "RMSprop", "eps >= 0", o.eps);
  check(o.momentum >= 0, "RMSprop", "momentum >= 0", o.momentum);
  add_state("square_avg");
  if (o.centered) add_state("grad_avg");
  if (o.momentum > 0) add_state("momentum_buffer");
}

void RMSprop::update(size_t i, const Tensor& grad, Where where) {
  Tensor g = directed(grad, o_.maximize, where);
  Cell *p = cell_of(i), *s = state_of("square_avg", i);
  Cell* mean = o_.centered ? state_of("grad_avg", i) : nullptr;
  Cell* buf = o_.momentum > 0 ? state_of("momentum_buffer", i) : nullptr;
  auto step = [&](const OpDef& row, std::initializer_list<Cell*> cells, auto... momentum) {
    run(row, cells, g, where, lr_operand(), o_.alpha, o_.eps, o_.weight_decay, momentum...);
  };
  if (mean && buf)
    step(op::rmsprop_centered_momentum_update, {p, s, mean, buf}, o_.momentum);
  else if (mean)
    step(op::rmsprop_centered_update, {p, s, mean});
  else if (buf)
    step(op::rmsprop_momentum_update, {p, s, buf}, o_.momentum);
  else
    step(op::rmsprop_update, {p, s});
}

Adagrad::Adagrad(std::vector<Param> params, AdagradOptions o)
    : Optimizer(std::move(params), o.lr, "Adagrad"), o_(o) {
  check(o.lr_decay >= 0, "Adagrad", "lr_decay >= 0", o.lr_decay);
  check(o.eps >= 0, "Adagrad", "eps >= 0", o.eps);
  add_state("sum", o.initial_accumulator_value);
}

void Adagrad::update(size_t i, const Tensor& grad, Where where) {
  Tensor g = directed(grad, o_.maximize, where);
  Operand rate = is_tracing() ? Operand(lr_tensor() / ((step_count() - 1.0) * o_.lr_decay + 1.0))
                              : Operand(lr_tensor().item<double>() /
                                        ((step_count().item<double>() - 1.0) * o_.lr_decay + 1.0));
  run(op::adagrad_update, {cell_of(i), state_of("sum", i)}, g, where, std::move(rate), o_.eps,
      o_.weight_decay);
}

}  // namespace tandem::optim
