// SPDX-License-Identifier: Apache-2.0
// ONNX models: load one, look at what it takes and gives, run it. Opsets 1 to 27 of ai.onnx,
// ai.onnx.ml and the preview domains, model-local functions, If, Loop and Scan, sequences,
// optionals and texts. The nodes run as Tandem's ops, one after the other; a model of tensors may
// also be called inside compile(). Outputs that are fed back as inputs: onnx_stepper.h.
// https://github.com/onnx/onnx/blob/main/docs/IR.md
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/interop/onnx_model.h"

namespace tandem::interop {

struct OnnxLoadOptions {
  /// The weights become inputs behind the graph's own, so that gradients can be taken by them;
  /// BatchNormalization and Dropout run as in training. Weights are initializers and constants of
  /// floating types that nodes multiply, add or look up; statistics, scales and other settings
  /// stay.
  bool trainable = false;
};

/// An output that is the next call's input.
struct OnnxState {
  std::string input, output;
};

class TD_API OnnxModel {
 public:
  /// Read a file. Large weights show the mapped file; external data must lie beneath its folder and
  /// be no link. Throws Io when it cannot be read, Format when it is cut, hostile or no model.
  static OnnxModel load(const FilePath& path, const OnnxLoadOptions& options = {});
  /// The same from memory; `name` stands for it in errors. External data is refused.
  static OnnxModel parse(std::string bytes, const std::string& name = "ONNX model",
                         const OnnxLoadOptions& options = {});

  /// What a run wants, in order: the graph's inputs that have no initializer.
  const std::vector<OnnxPort>& inputs() const;
  const std::vector<OnnxPort>& outputs() const;
  /// Of a trainable one: names and values of the weights, which are its last inputs, in order.
  const std::vector<std::pair<std::string, OnnxValue>>& weights() const;
  /// The pairs that the model itself names, as export_onnx() writes them: entries of its metadata
  /// "tandem.state.INPUT" with the output's name. See OnnxStepper.
  const std::vector<OnnxState>& states() const;
  const OnnxModelProto& proto() const;

  /// Values of the outputs for those of the inputs, in order; missing ones at the end are absent.
  /// `named`: others than the stored values, for inputs of the graph that have an initializer.
  /// Throws Unsupported for an op that is not known, Value for a name that is no input, and what
  /// the ops throw, naming the node.
  std::vector<OnnxValue> run(std::span<const OnnxValue> inputs,
                             const std::map<std::string, OnnxValue>& named = {}) const;
  /// The same for models of tensors; also inside compile(), where the weights become constants.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs,
                                 const std::map<std::string, Tensor>& named = {}) const;

 private:
  struct State;
  static OnnxModel from(std::shared_ptr<State> state, const OnnxLoadOptions& options);
  std::shared_ptr<const State> state_;
};

/// One entry per (domain, op) that can be imported: "Add", "ai.onnx.ml.Binarizer", sorted.
TD_API std::vector<std::string> onnx_ops();

}  // namespace tandem::interop
