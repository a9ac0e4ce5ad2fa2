// SPDX-License-Identifier: Apache-2.0
// What recipes may name: the tool's data sets and models on top of the library's own.
#pragma once

#include "tandem/train/recipe.h"

namespace tandem::cli {

/// Losses, data sets and models. Data is looked for under `data.root`, else under TANDEM_DATA.
train::Registry recipe_registry();
void add_data_components(train::Registry& registry);

}  // namespace tandem::cli
