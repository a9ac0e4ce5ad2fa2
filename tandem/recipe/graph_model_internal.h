// SPDX-License-Identifier: Apache-2.0
// The graph of a file, or of its bytes, as a LoadedModel.
#pragma once

#include "tandem/onnx/onnx.h"
#include "tandem/recipe/loaded_model.h"

namespace tandem::recipe {

/// A graph that is on the source's device. Throws Unsupported for one whose inputs or outputs are
/// not tensors of numbers.
LoadedModel graph_model(onnx::OnnxModel graph, const ModelSource& source);

}  // namespace tandem::recipe
