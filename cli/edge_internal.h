// SPDX-License-Identifier: Apache-2.0
// A model as C source, for the verbs that write it and the one that measures it.
#pragma once

#include "tandem/edge/edge.h"
#include "tandem/recipe/loaded_model.h"

namespace tandem::cli {

struct CompiledModel {
  recipe::LoadedModel model;
  edge::EdgeSource net;
  int64_t sample_rate = 0;  ///< of an input that is sound
};

/// What is written of a model, and how.
struct CompileChoice {
  recipe::ModelSource model;
  std::string shapes = {};        ///< as --shapes takes them
  bool with_preparation = false;  ///< it takes samples as they are
};
/// The model of a run, a file or a name.
CompiledModel compile_as_c(const CompileChoice& choice, const edge::EdgeOptions& options = {});

}  // namespace tandem::cli
