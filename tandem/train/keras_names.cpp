// SPDX-License-Identifier: Apache-2.0
// Optimizers, losses and metrics by Keras's names, with Keras's defaults and formulas.
#include "tandem/train/keras_names_internal.h"

#include <map>

#include "tandem/base/error.h"
#include "tandem/train/model.h"

namespace tandem::train {

OptimizerChoice::OptimizerChoice(const std::string& name) {
  const optim::OptimizerRow& row = optim::optimizers().at(name);
  TD_CHECK(!row.needs_closure, Value,
           "{} calls its loss several times a step: it is for loops in code", row.type);
  const std::shared_ptr<void> options = row.options->make();
  set_keras_defaults({options.get(), row.options});
  make = [&row, options](std::vector<Param> p) { return row.make(std::move(p), options.get()); };
}

LossChoice::LossChoice(const std::string& n) : name(n) {
  TD_CHECK(losses().at(name).parts, Value,
           "the loss '{}' is for recipes and loops: it gives no value per sample\nGive compile() a "
           "function, or one of Keras's names.",
           name);
}

LossParts loss_parts(const LossChoice& choice, bool from_logits, const Tensor& output,
                     const Tensor& target) {
  if (choice.function) return {choice.function(output, target), output, target};
  return losses().at(choice.name).parts(output, target, from_logits);
}

std::string metric_by_keras_name(const std::string& name) {
  static const std::map<std::string, std::string> all = {
      {"acc", "accuracy"},
      {"sparse_categorical_accuracy", "accuracy"},
      {"categorical_accuracy", "accuracy"},
      {"binary_accuracy", "accuracy"},
      {"sparse_top_k_categorical_accuracy", "top5_accuracy"},
      {"top_k_categorical_accuracy", "top5_accuracy"},
      {"AUC", "auc"},
      {"Precision", "precision"},
      {"Recall", "recall"},
      {"f1_score", "f1"},
      {"mean_absolute_error", "mae"},
      {"mean_squared_error", "mse"},
      {"root_mean_squared_error", "rmse"},
      {"r2_score", "r2"},
  };
  const auto it = all.find(name);
  return it == all.end() ? name : it->second;
}

}  // namespace tandem::train
