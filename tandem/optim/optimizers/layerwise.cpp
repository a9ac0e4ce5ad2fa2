// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/layerwise.h"

#include "tandem/graph/apply.h"
#include "tandem/ops/nn/update.h"

namespace tandem::optim {

namespace {
// |p| / |d|, or 1 where one of them is 0.
Number trust_ratio(const Number& p, const Number& d) {
  return if_above(p, 0.0, if_above(d, 0.0, p / d, 1.0), 1.0);
}
}  // namespace

LAMB::LAMB(ParamList params, LAMBOptions o) : Optimizer("LAMB", any_fields(o)) {
  add_all(std::move(params));
}

void LAMB::init(const Options&, size_t i) {
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

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
  apply(op::lamb_direction, nullptr, in, results, u.loc);
  u.set_state("exp_avg", results[1]);
  u.set_state("exp_avg_sq", results[2]);
  Number trust = trust_ratio(length(p), length(results[0]));
  u.run(op::sgd_plain_update, {}, {u.number("lr") * trust, 0.0}, results[0]);
}

LARS::LARS(ParamList params, LARSOptions o) : Optimizer("LARS", any_fields(o)) {
  step_is_optional();
  add_all(std::move(params));
}

void LARS::init(const Options& o, size_t i) {
  TD_CHECK(o["nesterov"] == 0 || (o["momentum"] > 0 && o["dampening"] == 0), Value,
           "LARS with nesterov expects momentum > 0 and dampening = 0");
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

}  // namespace tandem::optim
