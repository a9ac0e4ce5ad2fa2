// SPDX-License-Identifier: Apache-2.0
// data.json of a run's folder: what models ask of the data, the form of its batches and what else
// is kept, so that the run's model can be made and asked without the data.
#pragma once

#include "tandem/train/recipe.h"

namespace tandem::train {

/// A field of the training batches, its batch size as the first dimension.
struct BatchField {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};
struct RunData {
  std::map<std::string, int64_t> info;
  std::vector<BatchField> fields;
  DataFacts facts;
};

/// Makes the folder where there is none. Throws Io.
TD_API void write_run_data(const std::string& folder, const RecipeData& data);
/// Throws Io; Format naming the file and what it wants.
TD_API RunData read_run_data(const std::string& folder);

}  // namespace tandem::train
