// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/muon.h"

#include <cmath>

#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/update.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/view.h"

namespace tandem::optim {

Muon::Muon(ParamList params, MuonOptions o) : Optimizer("Muon", any_fields(o)), o_(o) {
  step_is_optional();
  check_fields(any_fields(o), "Muon");
  add_all(std::move(params));
}

void Muon::init(const Options&, size_t i) {
  const Param& p = params_of(i);
  TD_CHECK(p.dim() == 2, Shape,
           "Muon expects matrices, parameter {} ('{}') is {}\nGive the others to AdamW.", i,
           p.name(), p.shape().to_string());
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
