// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/stepper_internal.h"

#include "tandem/base/error.h"
#include "tandem/grad/autograd.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optimizers.h"

namespace tandem::plan {

DType whole_dtype(Precision p) {
  return p == Precision::pure_bf16 || p == Precision::mixed_bf16 ? DType::bf16
         : p == Precision::pure_f16                              ? DType::f16
                                                                 : DType::f32;
}

Stepper::Stepper(const Job& job, const WorkOptions& o, DryMemory* ledger)
    : o_(o), ledger_(ledger), form_(o.attention, o.training ? job.attention_dropout : 0) {
  enter(Phase::build);
  model_ = job.make(o.batch);
  TD_CHECK(!o.training || model_->loss, Unsupported,
           "{} has no loss: it can be planned for --serve only", job.name);
  if (const DType narrow = whole_dtype(o.precision); narrow != DType::f32) {
    TD_CHECK(model_->to, Unsupported, "{} cannot be converted to {}", job.name, to_string(narrow));
    model_->to(narrow);
    for (Tensor& t : model_->inputs)
      if (is_floating(t.dtype())) t = t.to(narrow);
  }
  if (model_->train) model_->train(o.training);
  if (o.training) optimizer_ = planned_optimizer(o.optimizer, model_->parameters);
  if (o.compiled)
    compiled_.emplace([this](const Inputs& in) { return body(in); },
                      CompileOptions{.memory_limit = o.memory_limit, .name = job.name},
                      SourceLocation::here());
}

void Stepper::step(const std::function<void()>& at_gradients) {
  at_gradients_ = at_gradients ? &at_gradients : nullptr;
  enter(Phase::forward);
  NoGradGuard no_grad(!o_.training);
  if (compiled_)
    (*compiled_)(model_->inputs);
  else
    body(model_->inputs);
}

void Stepper::forward() {
  enter(Phase::forward);
  NoGradGuard no_grad;
  run(model_->loss, model_->inputs);
}

void Stepper::enter(Phase p) {
  phase_ = static_cast<uint8_t>(p);
  if (ledger_) ledger_->phase = phase_;
}

Tensor Stepper::run(const std::function<Tensor(const Inputs&)>& f, const Inputs& in) {
  if (!is_amp(o_.precision)) return f(in);
  NarrowBatchNormGuard narrow(o_.framework == Framework::pytorch);
  AutocastGuard amp(o_.precision == Precision::amp_f16 ? DType::f16 : DType::bf16);
  return f(in);
}

Tensor Stepper::body(const Inputs& in) {
  if (!o_.training) return run(model_->forward, in);
  if (!o_.keep_gradients || o_.compiled) optimizer_->zero_grad();
  Tensor loss = run(model_->loss, in);
  enter(Phase::backward);
  loss.backward();
  if (at_gradients_) (*at_gradients_)();
  if (o_.clip_norm) {
    // Once for all batches of a step, as the update; memory is still that of the backward pass.
    phase_ = static_cast<uint8_t>(Phase::update);
    optim::clip_grad_norm_(model_->parameters, 1);
    if (at_gradients_) (*at_gradients_)();  // they may be new ones
  }
  enter(Phase::update);
  optimizer_->step();
  return loss.detach();
}

}  // namespace tandem::plan
