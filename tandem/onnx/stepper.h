// SPDX-License-Identifier: Apache-2.0
// Runs a model whose outputs are fed back as inputs (key-value caches, states of recurrent nets,
// parameters of a training step), keeping that state between calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/onnx/onnx.h"

namespace tandem::onnx {

struct OnnxStepperOptions {
  /// Pairs of an input and the output that becomes its next value; empty: those named by the model
  /// itself, as export_onnx() writes them (OnnxModel::states()).
  std::vector<OnnxState> states = {};
  /// Initial values of states, by input. Others start with the input's initializer, or with zeros
  /// of the shape stated by the model.
  std::map<std::string, Tensor> first = {};
  /// Sizes of symbolic dimensions by name, for zeros; a key-value cache starts with length 0:
  /// {{"batch", 1}, {"past_length", 0}}.
  std::map<std::string, int64_t> dims = {};
  /// Run steps as a compiled program. Every new set of sizes is traced once: for states whose sizes
  /// are fixed.
  bool compiled = false;
};

/// Holds the states of one sequence; steppers of one model share its weights. A state passes from
/// the output to the input without a copy. A handle: copies step the same sequence.
class TD_API OnnxStepper {
 public:
  /// Throws Value for names that are not in the model or appear twice, and for an unknown initial
  /// value; DType and Shape where the two ends of a pair do not match.
  ///     OnnxStepper s(OnnxModel::load("rnn.onnx"), {.states = {{"h", "h_next"}}});
  explicit OnnxStepper(OnnxModel model, const OnnxStepperOptions& options = {});

  /// Inputs and outputs of a step, in order: the model's, without the states.
  const std::vector<OnnxPort>& inputs() const;
  const std::vector<OnnxPort>& outputs() const;

  /// One step. If it throws, the states are unchanged. Throws what OnnxModel throws, and Shape
  /// where a state's new sizes are not accepted by its input.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  /// The state that the next step starts with. Throws Value for an input that is not a state.
  const Tensor& state(const std::string& input) const;
  /// Continue from this state: of another sequence, or saved from an earlier step. Throws Value,
  /// DType, Shape.
  void set_state(const std::string& input, Tensor value);
  /// Restore the initial values.
  void reset();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::onnx
