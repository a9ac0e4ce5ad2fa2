// SPDX-License-Identifier: Apache-2.0
// Optimizers with PyTorch's names, options and defaults. Learning rate, step count and moments are
// cells made by the constructor; each update is one op row over a parameter and its moments, in
// place where nobody holds the old values.
#pragma once

#include <vector>

#include <array>

#include "tandem/graph/cell.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::optim {

/// Base of all optimizers: parameters, gradients, state in and out.
class TD_API Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Update every parameter that has a gradient.
  void step(Where where = Where::here());
  /// Empty the gradients of all parameters.
  void zero_grad();

  /// The learning rate; throws Unsupported in a trace (see lr_tensor()).
  double lr() const;
  void set_lr(double lr);
  Tensor lr_tensor() const { return lr_.value(); }
  /// Number of step() calls so far, as a value (usable in a trace).
  Tensor step_count() const { return step_.value(); }
  const std::vector<Param>& params() const { return params_; }

  /// Moments by parameter name ("conv1.weight.exp_avg"), "step" and "lr".
  StateDict state_dict() const;
  /// Throws Value when a name is missing or unknown, Shape when a shape differs; changes nothing
  /// then.
  void load_state_dict(const StateDict& state);

 protected:
  /// Throws Value when `params` is empty or holds one twice.
  Optimizer(std::vector<Param> params, double lr, const char* type);
  /// A moment per parameter, zeros of its shape (or `fill`), named for state_dict.
  void add_state(const char* name, double fill = 0);
  /// Update parameter i, whose gradient is `grad`.
  virtual void update(size_t i, const Tensor& grad, Where where) = 0;

  Cell* cell_of(size_t i) const { return params_[i].cell().get(); }
  Cell* state_of(const char* name, size_t i) const;
  /// lr and beta^t as operands: numbers in eager, f64 tensors in a trace.
  Operand lr_operand() const;
  /// 1 - beta^step.
  Operand bias_correction(double beta) const;

 private:
  struct State {
    std::string name;
    std::vector<Buffer> cells;
  };
  std::vector<Param> params_;
  std::vector<State> states_;
  Buffer lr_, step_;
  const char* type_;
};

/// Scale gradients so that their total 2-norm is at most `max_norm`; gives the norm before.
TD_API Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm,
                              Where where = Where::here());
/// Clamp gradients to [-value, value].
TD_API void clip_grad_value_(const std::vector<Param>& params, double value,
                             Where where = Where::here());

}  // namespace tandem::optim
