// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/adagrad.h"

#include "tandem/ops/nn/update.h"

namespace tandem::optim {

Adagrad::Adagrad(ParamList params, AdagradOptions o) : Optimizer("Adagrad", any_fields(o)) {
  add_all(std::move(params));
}

void Adagrad::init(const Options& o, size_t i) {
  add_state(i, "sum", o["initial_accumulator_value"]);
}

void Adagrad::update(Update& u) {
  Number rate = u.number("lr") / ((u.step() - 1.0) * u.number("lr_decay") + 1.0);
  u.run(op::adagrad_update, {"sum"}, {rate, u.number("eps"), u.number("weight_decay")});
}

Adadelta::Adadelta(ParamList params, AdadeltaOptions o) : Optimizer("Adadelta", any_fields(o)) {
  add_all(std::move(params));
}

void Adadelta::init(const Options&, size_t i) {
  add_state(i, "square_avg");
  add_state(i, "acc_delta");
}

void Adadelta::update(Update& u) {
  u.run(op::adadelta_update, {"square_avg", "acc_delta"},
        {u.number("lr"), u.number("rho"), u.number("eps"), u.number("weight_decay")});
}

RMSprop::RMSprop(ParamList params, RMSpropOptions o) : Optimizer("RMSprop", any_fields(o)) {
  add_all(std::move(params));
}

void RMSprop::init(const Options& o, size_t i) {
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

}  // namespace tandem::optim
