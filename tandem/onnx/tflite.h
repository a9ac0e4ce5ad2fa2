// SPDX-License-Identifier: Apache-2.0
// .tflite files (TensorFlow Lite, LiteRT) as graphs of the importer: OnnxModel::load() takes them
// like ONNX files and TensorFlow's other models (tensorflow.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/onnx/model.h"

namespace tandem::onnx {

/// Whether a file's content is such a model.
TD_API bool is_tflite_model(std::string_view content);
/// Its graph by `signature` ("": "serving_default", else that of the first subgraph, which a model
/// without signatures has as well). Throws Io; Format where the model is broken; Value for a
/// signature that it lacks; Unsupported, naming all unknown ops, their versions and subgraphs.
TD_API OnnxModelProto read_tflite_model(const FilePath& path, const std::string& signature = "");
TD_API std::vector<std::string> tflite_signatures(const FilePath& path);
/// The operators that are known, by the schema's names, sorted.
TD_API std::vector<std::string> tflite_ops();

}  // namespace tandem::onnx
