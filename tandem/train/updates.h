// SPDX-License-Identifier: Apache-2.0
// A step with several optimizers: the user's step computes a loss for each, in its order, and hands
// it to Updates, which does what the Trainer does with the loss of a step with one optimizer:
// gradients, accumulation, scaling, clipping, the look at NaN, the update.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/optim/optimizer.h"

namespace tandem::train {

/// The fields of one element of a pipeline.
using Batch = std::vector<Tensor>;
/// Names with values of one element.
using Figures = std::vector<std::pair<std::string, Tensor>>;

/// What a step computes of a batch. Output and target are what metrics see; they may be undefined.
struct StepOutput {
  /// One element. Of a step with several optimizers it is only logged; undefined: the sum of the
  /// losses.
  Tensor loss, output, target;
  Tensor prediction = {};  ///< what predict() gives, where that is not the output
  Figures figures = {};    ///< further values to log, each as a mean over the epoch
};
using StepFunction = std::function<StepOutput(const Batch&)>;

/// One of several optimizers, by the name that its loss and rate are logged by. It must outlive the
/// trainer.
struct NamedOptimizer {
  std::string name;
  optim::Optimizer& optimizer;
  int64_t every = 1;  ///< updates of the run between its own: 5 for a generator updated after every
                      ///< fifth update of its critic
};

/// The updates of a step with several optimizers.
class TD_API Updates {
 public:
  virtual ~Updates() = default;
  /// In training: the gradients of `loss` with respect to the parameters of optimizer `name`, and
  /// of these alone, then the update; what the step computes afterwards sees the new parameters. In
  /// validation, and where it is not the optimizer's turn, nothing changes. The loss is logged as
  /// "<name>_loss". Hand a loss over in every call of the step, or guard it with due().
  /// `retain_graph`: another loss goes back through the same values. Throws Value for an unknown
  /// name and for one that comes twice, Shape unless the loss has one element.
  virtual void operator()(const std::string& name, const Tensor& loss,
                          bool retain_graph = false) = 0;
  /// Whether this batch is optimizer `name`'s turn (NamedOptimizer::every); true in validation.
  virtual bool due(const std::string& name) const = 0;
  /// False in validation, prediction and where the step is only looked at.
  virtual bool training() const = 0;
};

/// A step with several optimizers.
using UpdateStep = std::function<StepOutput(const Batch&, Updates&)>;
/// The same without updates: the losses are added to the output's. For those who look at a step:
/// the planner, reports.
TD_API StepFunction sum_of_losses(UpdateStep step);

}  // namespace tandem::train
