// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates: one pointwise row each, from parameter, gradient and moments to the new
// parameter and moments, in PyTorch's order of operations. Optimizers apply them to cells.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem::op {

/// All state tensors have the parameter's shape; output k has the dtype of its old value. Inputs
/// marked $ are numbers or 0-d f64 tensors; expressions of these alone are computed in f64. Flags
/// such as `nesterov` and `decoupled` are 0 or 1. `bias1` = 1 - beta1^step, `bias2` likewise; to
/// maximise, the caller negates the gradient.

/// p, g, lr$, weight_decay$ -> p
extern TD_API const OpDef sgd_plain_update;
/// p, g, buf, lr$, momentum$, dampening$, weight_decay$, nesterov$, first$ -> p, buf.
/// `first`: no buffer yet, it becomes the gradient.
extern TD_API const OpDef sgd_update;
/// p, g, m, v, lr$, beta1$, beta2$, eps$, weight_decay$, bias1$, bias2$ -> p, m, v; the amsgrad
/// variants have vmax after v, as input and output.
extern TD_API const OpDef adam_update, adamw_update, adam_amsgrad_update, adamw_amsgrad_update;
/// p, g, square, [mean,] [buf,] lr$, alpha$, eps$, weight_decay$[, momentum$] -> p, square, ...
extern TD_API const OpDef rmsprop_update, rmsprop_momentum_update, rmsprop_centered_update,
    rmsprop_centered_momentum_update;
/// p, g, sum, lr$ (decayed), eps$, weight_decay$ -> p, sum
extern TD_API const OpDef adagrad_update;
/// p, g, square, delta, lr$, rho$, eps$, weight_decay$ -> p, square, delta
extern TD_API const OpDef adadelta_update;
/// p, g, m, u, lr$, beta1$, beta2$, eps$, weight_decay$, bias1$ -> p, m, u
extern TD_API const OpDef adamax_update;
/// p, g, m, v, lr$, beta1$, beta2$, eps$, weight_decay$, decoupled$, bias2$, mu$, mu_next$,
/// mu_product$ (up to this step) -> p, m, v
extern TD_API const OpDef nadam_update;
/// p, g, m, v, lr$, beta1$, beta2$, eps$, weight_decay$, decoupled$, bias1$, bias2$, rect$ -> p, m,
/// v; rect 0: the variance is not yet tractable.
extern TD_API const OpDef radam_update;
/// p, g, prev, step_size, eta_minus$, eta_plus$, min$, max$ -> p, prev, step_size
extern TD_API const OpDef rprop_update;
/// p, g, ax, lambd$, weight_decay$, eta$, mu$ -> p, ax
extern TD_API const OpDef asgd_update;
/// p, g, m, lr$, beta1$, beta2$, weight_decay$ -> p, m
extern TD_API const OpDef lion_update;
/// p, g, buf, lr$, momentum$, dampening$, weight_decay$, nesterov$, first$, trust$ -> p, buf
extern TD_API const OpDef lars_update;
/// p, g, m, v, beta1$, beta2$, eps$, weight_decay$, bias1$, bias2$ -> direction, m, v
extern TD_API const OpDef lamb_direction;
/// p, g, m, v, lr$, beta1$, beta2$, eps$, bias1$, bias2$ -> p, m, v; nothing changes where g is 0.
extern TD_API const OpDef sparse_adam_update;
/// p, direction, lr$, weight_decay$, rate$ -> p (1 - lr weight_decay) - rate direction
extern TD_API const OpDef decoupled_update;

}  // namespace tandem::op

namespace tandem {
TD_API std::span<const OpDef* const> update_rows();
}  // namespace tandem
