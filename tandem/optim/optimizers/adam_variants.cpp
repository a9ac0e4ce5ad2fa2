// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/adam_variants.h"

#include "tandem/ops/nn/update.h"

namespace tandem::optim {

Adamax::Adamax(ParamList params, AdamaxOptions o) : Optimizer("Adamax", any_fields(o)) {
  add_all(std::move(params));
}

void Adamax::init(const Options&, size_t i) {
  add_state(i, "exp_avg");
  add_state(i, "exp_inf");
}

void Adamax::update(Update& u) {
  u.run(op::adamax_update, {"exp_avg", "exp_inf"},
        {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("eps"),
         u.number("weight_decay"), u.bias_correction("beta1")});
}

NAdam::NAdam(ParamList params, NAdamOptions o) : Optimizer("NAdam", any_fields(o)) {
  add_number("mu_product", 1);
  add_all(std::move(params));
}

void NAdam::init(const Options&, size_t i) {
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

RAdam::RAdam(ParamList params, RAdamOptions o) : Optimizer("RAdam", any_fields(o)) {
  add_all(std::move(params));
}

void RAdam::init(const Options&, size_t i) {
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

SparseAdam::SparseAdam(ParamList params, SparseAdamOptions o)
    : Optimizer("SparseAdam", any_fields(o)) {
  add_all(std::move(params));
}

void SparseAdam::init(const Options&, size_t i) {
  add_state(i, "exp_avg");
  add_state(i, "exp_avg_sq");
}

void SparseAdam::update(Update& u) {
  u.run(op::sparse_adam_update, {"exp_avg", "exp_avg_sq"},
        {u.number("lr"), u.number("beta1"), u.number("beta2"), u.number("eps"),
         u.bias_correction("beta1"), u.bias_correction("beta2")});
}

}  // namespace tandem::optim
