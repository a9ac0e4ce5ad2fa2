// SPDX-License-Identifier: Apache-2.0
// What the exports to TFLite and TensorFlow.js have in common: the function as an ONNX model with
// every value that it has on the examples, and the comparison with the file that was written.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/onnx/export.h"
#include "tandem/onnx/model.h"

namespace tandem::onnx {

using NamedTensors = std::map<std::string, Tensor>;

struct TracedModel {
  OnnxModelProto model;
  std::map<std::string, OnnxValue> values;
  NamedTensors inputs, outputs;
  bool has_codes = false;  ///< some values are rounded to codes
};
/// Names: "": the exporter's own. Throws what `f` and the ONNX export throw.
TracedModel traced_model(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                         std::span<const Tensor> examples,
                         const std::vector<std::string>& input_names,
                         const std::vector<std::string>& output_names);

/// How far results may be from what is wanted: atol + rtol times the largest value.
struct WrittenLimits {
  double rtol = 0, atol = 0;
  bool any = false;  ///< whatever the difference: it is only reported
};
struct WrittenErrors {
  double largest = 0, relative = 0;
};
/// Runs the model in a file. Throws Value beyond the limits, Internal for ports or shapes that are
/// not those of the model that was written.
WrittenErrors compare_written(const FilePath& path, const NamedTensors& inputs,
                              const NamedTensors& outputs, const WrittenLimits& limits);

}  // namespace tandem::onnx
