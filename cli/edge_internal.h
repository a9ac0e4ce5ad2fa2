// SPDX-License-Identifier: Apache-2.0
// A model as C source, for the verbs that write it and the one that measures it.
#pragma once

#include "tandem/edge/edge.h"
#include "tandem/recipe/loaded_model.h"

namespace tandem::cli {

struct CompiledModel {
  recipe::LoadedModel model;
  edge::EdgeSource net;
};

/// The model of a run, a file or a name; `shapes` as --shapes takes them.
CompiledModel compile_as_c(const recipe::ModelSource& source, const std::string& shapes,
                           const edge::EdgeOptions& options = {});

}  // namespace tandem::cli
