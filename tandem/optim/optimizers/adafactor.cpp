// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/adafactor.h"

#include <cmath>
#include <limits>

#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/update.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"

namespace tandem::optim {

Adafactor::Adafactor(ParamList params, AdafactorOptions o) : Optimizer("Adafactor", any_fields(o)) {
  add_all(std::move(params));
}

void Adafactor::init(const Options&, size_t i) {
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

}  // namespace tandem::optim
