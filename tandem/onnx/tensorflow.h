// SPDX-License-Identifier: Apache-2.0
// Models that TensorFlow and Keras wrote, as graphs of the importer: OnnxModel::load() takes them
// like ONNX files. A SavedModel's signature, a frozen graph (.pb), a .keras archive, an .h5 file
// with its architecture, TensorFlow.js's model.json with the weights beside it. Decision 016 says
// why they share the importer.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/onnx/model.h"

namespace tandem::onnx {

/// Whether `path` is such a model: a folder with saved_model.pb or TensorFlow.js's model.json, or a
/// file whose content says so.
TD_API bool is_tensorflow_model(const FilePath& path);
/// Its graph, from the inputs to the outputs of `signature` ("": "serving_default", or the only
/// one; other models have none). Variables become initializers; one that the model writes becomes a
/// state (see OnnxModel::states). Throws Io; Format where the model is broken; Value for a
/// signature that it lacks, naming those it has; Unsupported, with all unknown ops and counts.
TD_API OnnxModelProto read_tensorflow_model(const FilePath& path,
                                            const std::string& signature = "");
/// The signatures of a SavedModel by which it can be called; none of other models.
TD_API std::vector<std::string> tensorflow_signatures(const FilePath& path);
/// The ops of TensorFlow's graphs that have a row, sorted.
TD_API std::vector<std::string> tensorflow_ops();

}  // namespace tandem::onnx
