// SPDX-License-Identifier: Apache-2.0
// Between model.cpp and keras_names.cpp.
#pragma once

#include <string>
#include <vector>

#include "tandem/train/losses.h"

namespace tandem::train {

struct LossChoice;

LossParts loss_parts(const LossChoice& choice, bool from_logits, const Tensor& output,
                     const Tensor& target);
/// make_metric()'s name of Keras's; others as they are.
std::string metric_by_keras_name(const std::string& name);

}  // namespace tandem::train
