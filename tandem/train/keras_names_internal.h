// SPDX-License-Identifier: Apache-2.0
// Between model.cpp and keras_names.cpp.
#pragma once

#include <string>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::train {

struct LossChoice;

/// A loss, not yet averaged, and what metrics see: scores and labels or numbers of one shape.
struct LossParts {
  Tensor loss, output, target;
};
LossParts loss_parts(const LossChoice& choice, bool from_logits, const Tensor& output,
                     const Tensor& target);
/// Every name that LossChoice takes.
std::vector<std::string> keras_loss_names();
/// y as numbers of x's shape and dtype: [n] beside [n, 1] is one column. Throws Shape.
Tensor targets_like(const Tensor& y, const Tensor& x);
/// make_metric()'s name of Keras's; others as they are.
std::string metric_by_keras_name(const std::string& name);

}  // namespace tandem::train
