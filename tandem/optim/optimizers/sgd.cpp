// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/sgd.h"

#include <limits>

#include "tandem/ops/nn/update.h"

namespace tandem::optim {

SGD::SGD(ParamList params, SGDOptions o) : Optimizer("SGD", any_fields(o)) {
  step_is_optional();
  add_all(std::move(params));
}

void SGD::init(const Options& o, size_t i) {
  TD_CHECK(o["nesterov"] == 0 || (o["momentum"] > 0 && o["dampening"] == 0), Value,
           "SGD with nesterov expects momentum > 0 and dampening = 0");
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

ASGD::ASGD(ParamList params, ASGDOptions o) : Optimizer("ASGD", any_fields(o)) {
  add_number("eta", std::numeric_limits<float>::quiet_NaN());  // none yet: the group's lr
  add_number("mu", 1);
  add_all(std::move(params));
}

void ASGD::init(const Options&, size_t i) { add_state(i, "ax"); }

void ASGD::update(Update& u) {
  Number t = u.step(), lr = u.number("lr"), lambd = u.number("lambd");
  // PyTorch keeps both in float32.
  Number eta = if_above(t, 1.0, u.kept("eta"), as_f32(lr));
  u.run(op::asgd_update, {"ax"}, {lambd, u.number("weight_decay"), eta, u.kept("mu")});
  u.keep("eta", as_f32(lr / pow(lambd * lr * t + 1.0, u.number("alpha"))));
  u.keep("mu", as_f32(1.0 / max(t - u.number("t0"), 1.0)));
}

Rprop::Rprop(ParamList params, RpropOptions o) : Optimizer("Rprop", any_fields(o)) {
  add_all(std::move(params));
}

void Rprop::init(const Options& o, size_t i) {
  TD_CHECK(o["eta_minus"] > 0 && o["eta_minus"] < 1 && o["eta_plus"] > 1, Value,
           "Rprop expects etas with 0 < first < 1 < second, got {} and {}", o["eta_minus"],
           o["eta_plus"]);
  add_state(i, "prev");
  add_state(i, "step_size", o["lr"]);
}

void Rprop::update(Update& u) {
  u.run(op::rprop_update, {"prev", "step_size"},
        {u.number("eta_minus"), u.number("eta_plus"), u.number("step_size_min"),
         u.number("step_size_max")});
}

}  // namespace tandem::optim
