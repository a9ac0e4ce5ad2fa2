// SPDX-License-Identifier: Apache-2.0
// ONNX models: load one, inspect its inputs and outputs, run it. Opsets 1 to 28 of ai.onnx,
// those of ai.onnx.ml and the preview domains, quantisers' ops of com.microsoft, model-local
// functions, If, Loop and Scan, sequences, optionals and strings. The nodes run as Tandem's ops in
// sequence; a model of tensors may also be called inside compile(). Outputs that are fed back as
// inputs: stepper.h. https://github.com/onnx/onnx/blob/main/docs/IR.md
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/onnx/model.h"

namespace tandem::onnx {

struct OnnxLoadOptions {
  /// The weights become inputs after the graph's own, so that gradients with respect to them can be
  /// taken; BatchNormalization and Dropout run in training mode. Weights are initializers and
  /// constants of floating types that nodes multiply, add or look up; statistics, scales and other
  /// settings stay constant.
  bool trainable = false;
  /// Of a SavedModel: which of its signatures; "": "serving_default", or the only one.
  std::string signature = {};
  /// Where it runs: weights lie there, inputs are brought there, and results stay there. Sizes and
  /// other settings that nodes read stay on the host.
  Device device = cpu;
  /// What reading the file may cost, and each run of the model: see BudgetLimits.
  BudgetLimits limits = {};
};

/// An output that is the next call's input.
struct OnnxState {
  std::string input, output;
};

class TD_API OnnxModel {
 public:
  /// Read a file. Large weights map the file; external data must be below its folder and not a
  /// link. Throws Io when it cannot be read, Format when it is truncated, hostile, not a model, or
  /// goes over a limit. TensorFlow's and Keras's models are read, too (tensorflow.h).
  static OnnxModel load(const FilePath& path, const OnnxLoadOptions& options = {});
  /// The same from memory; `name` is used in errors. External data is rejected.
  static OnnxModel parse(std::string bytes, const std::string& name = "ONNX model",
                         const OnnxLoadOptions& options = {});

  /// The inputs of a run, in order: the graph's inputs without an initializer.
  const std::vector<OnnxPort>& inputs() const;
  const std::vector<OnnxPort>& outputs() const;
  /// For a trainable model: names and values of the weights, which are its last inputs, in order.
  const std::vector<std::pair<std::string, OnnxValue>>& weights() const;
  /// The pairs named by the model itself, as export_onnx() writes them: entries of its metadata
  /// "tandem.state.INPUT" with the output's name. See OnnxStepper.
  const std::vector<OnnxState>& states() const;
  const OnnxModelProto& proto() const;

  /// Values of the outputs for those of the inputs, in order; missing ones at the end are absent.
  /// `named`: replaces the stored values of inputs that have an initializer. Throws Unsupported
  /// for an unknown op, Value for a name that is not an input, Format where the model goes over a
  /// limit of its OnnxLoadOptions, and what the ops throw, naming the node.
  std::vector<OnnxValue> run(std::span<const OnnxValue> inputs,
                             const std::map<std::string, OnnxValue>& named = {}) const;
  /// The same for models of tensors; also inside compile(), where the weights become constants.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs,
                                 const std::map<std::string, Tensor>& named = {}) const;

  /// Tensors as values of the inputs' element types (an undefined one: absent). Throws Value for
  /// too many.
  std::vector<OnnxValue> values_of(const std::vector<Tensor>& inputs) const;
  /// Its file, or the name that parse() was given.
  const std::string& name() const;
  /// What a call with these inputs may cost: charged while the result lives. run() opens its own.
  Budget open_budget(std::span<const OnnxValue> inputs) const;

 private:
  struct State;
  static OnnxModel from(std::shared_ptr<State> state, const OnnxLoadOptions& options);
  std::shared_ptr<const State> state_;
};

/// One entry per importable (domain, op): "Add", "ai.onnx.ml.Binarizer", sorted.
TD_API std::vector<std::string> onnx_ops();

}  // namespace tandem::onnx
