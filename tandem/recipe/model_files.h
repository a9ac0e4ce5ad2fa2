// SPDX-License-Identifier: Apache-2.0
// Models and weights written to files: ONNX, or weights in any format. Both are read back and
// compared before the call returns.
#pragma once

#include <string>

#include "tandem/recipe/loaded_model.h"

namespace tandem::onnx {
struct OnnxExportOptions;
}
namespace tandem::recipe {

struct OnnxFileOptions {
  /// Sizes of the example that the result is checked with, as "x:1x3x224x224".
  std::string shapes = "";
  int opset = 18;
  /// Dimensions of the inputs that stay open. Nothing: what the model opens by itself (the batch,
  /// the lengths of sequences); "all": height and width of images, too, where it takes any;
  /// "none"; or for each input "x:0=batch,2=height", as torch.onnx.export's dynamic_shapes.
  /// Dimensions of one name are equal.
  std::vector<std::string> dynamic = {};
};
struct OnnxFile {
  std::string report;           ///< one line: the file, what it holds and how far it was checked
  bool random_weights = false;  ///< no weights were given: the values are initial ones
};
/// The model (a run's folder, or what load_model() takes) as an ONNX file whose weights lie beside
/// it. Written into the folder of the model itself, it refers to the weights that are there. Throws
/// Value for a dimension in `dynamic` that no input has, Shape for one that the model fixes.
TD_API OnnxFile write_onnx(const ModelSource& source, const std::string& out,
                           const OnnxFileOptions& options = {});
/// The model as a .tflite file, with the sizes of the example. Throws Unsupported for ops that
/// TFLite has no form for.
TD_API OnnxFile write_tflite(const ModelSource& source, const std::string& out,
                             const OnnxFileOptions& options = {});
/// The same as a model of TensorFlow.js: `out` (model.json) and its weights beside it. `quantize`:
/// as in onnx::TfjsExportOptions. A .tflite file keeps its open sizes.
TD_API OnnxFile write_tfjs(const ModelSource& source, const std::string& out,
                           const OnnxFileOptions& options = {}, const std::string& quantize = "");
/// A run's folder, or what load_model() takes.
TD_API LoadedModel load_any(const ModelSource& source);
/// The names of the model's inputs and outputs and, if `open`, its open dimensions; sets the sizes
/// of the model's inputs to those of the example. Throws as write_onnx().
TD_API onnx::OnnxExportOptions export_options(LoadedModel& model, const OnnxFileOptions& options,
                                              bool open);
/// Weights as a file of the format that its ending names. Throws Io if they do not read back.
TD_API void write_weights(const StateDict& tensors, const std::string& out);

}  // namespace tandem::recipe
