// SPDX-License-Identifier: Apache-2.0
// A run's folder opened again: its recipe says which model it is, data.json of which sizes, and the
// folder holds the weights. The data itself is not needed.
#pragma once

#include <string>

#include "tandem/recipe/recipe.h"
#include "tandem/recipe/run_data.h"

namespace tandem::recipe {

/// A run's model with its weights, in evaluation mode.
struct OpenedRun {
  std::string folder;
  Recipe recipe;
  RunData data;
  std::string type;  ///< of the model
  RecipeModel model;
  Device device = cpu;  ///< where the model is
};
/// Is it a run folder (recipe.yaml and metrics.jsonl)?
TD_API bool is_run(const std::string& folder);
/// `weights`: "last" (or "") or "best", by the run's monitor. LoRA updates are merged into the
/// weights. Throws Io without weights, Unsupported for a run without a model (an agent's).
TD_API OpenedRun open_run(const std::string& folder, const std::string& weights = "",
                          Device device = cpu);
/// The type of its data, as its recipe has it.
TD_API std::string data_type(const OpenedRun& run);
/// How samples are prepared as those of its test set; nothing for data of arrays.
TD_API std::optional<Preparation> preparation_of(const OpenedRun& run);

}  // namespace tandem::recipe
