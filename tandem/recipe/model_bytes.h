// SPDX-License-Identifier: Apache-2.0
// Models whose file lies in memory.
#pragma once

#include <string>

#include "tandem/recipe/loaded_model.h"

namespace tandem::recipe {

/// The model in the bytes of an .onnx, .tflite, .keras or .h5 file; `source.model` names it in
/// messages, and its weights are its own. Throws as load_model() does; Value where `source` has
/// weights.
TD_API LoadedModel load_model_bytes(std::string bytes, const ModelSource& source);

}  // namespace tandem::recipe
