// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/adam.h"

#include "tandem/ops/nn/update.h"

namespace tandem::optim::detail {

AdamBase::AdamBase(ParamList params, AnyFields options, bool decoupled, const char* type)
    : Optimizer(type, options), decoupled_(decoupled) {
  add_all(std::move(params));
}

void AdamBase::init(const Options& o, size_t i) {
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

}  // namespace tandem::optim::detail
