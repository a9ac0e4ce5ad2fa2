// SPDX-License-Identifier: Apache-2.0
// A model whose outputs are fed back as inputs (caches of keys and values, states of recurrent
// nets, parameters of a training step): what goes around stays inside from call to call.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/interop/onnx.h"

namespace tandem::interop {

struct OnnxStepperOptions {
  /// Pairs of an input and the output that comes back as it; empty: those that the model itself
  /// names, as export_onnx() writes them (OnnxModel::states()).
  std::vector<OnnxState> states = {};
  /// What states begin with, by their inputs. Others begin with the input's initializer, or with
  /// zeros of the shape that the model states.
  std::map<std::string, Tensor> first = {};
  /// Sizes of open dimensions by their names, for zeros; a cache of keys and values begins with
  /// length 0: {{"batch", 1}, {"past_length", 0}}.
  std::map<std::string, int64_t> dims = {};
  /// Steps run as a compiled program. Every new set of sizes is traced once: for states that keep
  /// theirs.
  bool compiled = false;
};

/// Holds the states of one sequence; steppers of one model share its weights. A state goes from the
/// output to the input as it is, without a copy. A handle: copies step the same sequence.
class TD_API OnnxStepper {
 public:
  /// Throws Value for names that the model does not have or that are named twice, and for a first
  /// value that is not known; DType and Shape where the two ends of a pair do not fit.
  ///     OnnxStepper s(OnnxModel::load("rnn.onnx"), {.states = {{"h", "h_next"}}});
  explicit OnnxStepper(OnnxModel model, const OnnxStepperOptions& options = {});

  /// What a step wants and gives, in order: the model's inputs and outputs but for the states.
  const std::vector<OnnxPort>& inputs() const;
  const std::vector<OnnxPort>& outputs() const;

  /// One step. When it throws, the states are what they were. Throws what OnnxModel throws, and
  /// Shape where a state comes out with sizes that its input does not take.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  /// What the next step begins with. Throws Value for an input that is no state.
  const Tensor& state(const std::string& input) const;
  /// Go on from this one: of another sequence, or kept from an earlier step. Throws Value, DType,
  /// Shape.
  void set_state(const std::string& input, Tensor value);
  /// Back to the first values.
  void reset();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::interop
