// SPDX-License-Identifier: Apache-2.0
// The samples of a recipe as its model gets them, as arrays: for other programs that are to see the
// same numbers.
#pragma once

#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

struct DataArraysOptions {
  std::string part = "test";  ///< train, val or test
  int64_t samples = 0;        ///< the first ones; 0: all
};

/// Fields of the part's batches, each with all samples, under the names "x0", "x1" ... where the
/// model takes them and "labels" for what it is compared with, where that is known. Without the
/// trained model: any recipe will do. Throws Value where the recipe has no such part, or where
/// batches have different sizes (texts that are padded by batch: set the batch's size to 1, or a
/// length).
TD_API StateDict data_arrays(const Recipe& recipe, const DataArraysOptions& options = {});

}  // namespace tandem::recipe
