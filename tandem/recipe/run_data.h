// SPDX-License-Identifier: Apache-2.0
// data.json of a run's folder: what models ask of the data, the form of its batches and what else
// is kept, so that the run's model can be made and asked without the data.
#pragma once

#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// The text of data.json; makes the first batch.
TD_API std::string run_data_text(const RecipeData& data);
/// Throws Io; Format naming the file and what it wants.
TD_API RunData read_run_data(const std::string& folder);

}  // namespace tandem::recipe
