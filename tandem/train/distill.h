// SPDX-License-Identifier: Apache-2.0
// Knowledge distillation: a net learns from the outputs of a trained one besides its labels
// (Hinton et al., Distilling the Knowledge in a Neural Network, https://arxiv.org/abs/1503.02531).
#pragma once

#include "tandem/base/fields.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

struct DistillOptions {
  double alpha = 0.5;
  double temperature = 2;

  template <class V>
  void fields(V& v) {
    v("alpha", alpha,
      {.doc = "share of the teacher's term in the loss; the rest is the recipe's own",
       .at_least = 0,
       .at_most = 1,
       .resumable = true});
    v("temperature", temperature,
      {.doc = "that both outputs are divided by before softmax", .above = 0, .resumable = true});
  }
};

/// T^2 KL(softmax(teacher / T) || softmax(student / T)) of logits [n, classes, ...], the classes
/// along dimension 1, averaged over everything else. Throws Shape where they differ.
TD_API Tensor distillation_loss(const Tensor& student, const Tensor& teacher,
                                double temperature = 2);

/// A step with alpha * distillation_loss(...) + (1 - alpha) * its own loss while `model` is in
/// training mode; in evaluation the loss is its own. `teacher` gives the logits for a batch and is
/// called without gradients.
TD_API StepFunction distilled(StepFunction step, nn::Module& model,
                              std::function<Tensor(const Batch&)> teacher,
                              const DistillOptions& options = {});

}  // namespace tandem::train
