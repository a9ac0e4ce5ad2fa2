// SPDX-License-Identifier: Apache-2.0
// The step of a job, eager or compiled, in a dry run or for real. Not installed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/compile/compile.h"
#include "tandem/compile/run/executable.h"
#include "tandem/optim/optimizer.h"
#include "tandem/plan/workload.h"
#include "tandem/tensor/dry_memory.h"

namespace tandem::plan {

/// What everything is converted to, f32 where nothing is.
DType whole_dtype(Precision p);
/// Throws Value naming the nearest.
std::unique_ptr<optim::Optimizer> planned_optimizer(const std::string& name,
                                                    std::vector<Param> parameters);

/// A model with its optimizer. `ledger`, if there is one, is told the phase.
class Stepper {
 public:
  /// Throws Unsupported for training what has no loss and for a precision that the model lacks.
  Stepper(const Job& job, const WorkOptions& o, DryMemory* ledger);

  /// One step; eager ones call `at_gradients` when all gradients are there.
  void step(const std::function<void()>& at_gradients = {});
  /// The loss alone, not recorded.
  void forward();
  const JobModel& model() const { return *model_; }
  const optim::Optimizer* optimizer() const { return optimizer_.get(); }
  Ref<Executable> executable() const { return compiled_ ? compiled_->executable() : nullptr; }
  const uint8_t& phase() const { return phase_; }

 private:
  using Inputs = std::vector<Tensor>;
  void enter(Phase p);
  Tensor run(const std::function<Tensor(const Inputs&)>& f, const Inputs& in);
  Tensor body(const Inputs& in);

  WorkOptions o_;
  DryMemory* ledger_;
  AttentionFormGuard form_;
  uint8_t phase_ = 0;
  std::shared_ptr<JobModel> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<Compiled<std::function<Tensor(const Inputs&)>>> compiled_;
  const std::function<void()>* at_gradients_ = nullptr;
};

}  // namespace tandem::plan
