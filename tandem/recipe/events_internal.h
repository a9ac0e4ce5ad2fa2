// SPDX-License-Identifier: Apache-2.0
// A recipe's run for TensorBoard: its settings as hyperparameters and the recipe as text.
#pragma once

#include "tandem/io/yaml.h"
#include "tandem/train/callbacks.h"

namespace tandem::recipe {

/// Every scalar of the resolved recipe by its dotted path ("optim.lr"), lists as their text; not
/// what describes the recipe instead of the run (recipe, note, expect, search, tune).
runs::HParams recipe_hparams(const io::Yaml& resolved);
/// The callback; `histograms`: epochs between histograms of the weights, 0 for none.
std::shared_ptr<train::TensorBoard> recipe_events(const std::string& folder,
                                                  const io::Yaml& resolved,
                                                  const std::string& recipe, int64_t histograms);

}  // namespace tandem::recipe
