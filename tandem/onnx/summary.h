// SPDX-License-Identifier: Apache-2.0
// What a model's file holds, without running it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/onnx/onnx.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::onnx {

struct OnnxSummary {
  /// Numbers of floating types: initializers, and tensors of more than one element in Constant
  /// nodes, where some exporters keep weights; of the graphs in attributes and functions, too.
  int64_t parameters = 0;
  int64_t in_constants = 0;  ///< of the parameters: those in Constant nodes
  int64_t buffers = 0;       ///< numbers of other types, alike
  int64_t weight_bytes = 0;  ///< of both, as they are stored in memory
  int64_t nodes = 0;
  std::map<std::string, int64_t> ops;    ///< nodes by op ("ai.onnx.ml.Binarizer"), all graphs
  std::vector<std::string> unknown_ops;  ///< of these: those that cannot be imported
  std::vector<std::string> unused;       ///< what no output depends on, "initializer 'w'"
};
TD_API OnnxSummary summarize(const OnnxModel& model);

/// The tensors behind OnnxSummary::parameters and buffers by name: initializers, and what Constant
/// nodes give, but for integers of at most one dimension: sizes, axes. Types without a dtype of
/// ours come in their carrier (import/value.h). Throws Format where two different tensors have one
/// name.
TD_API StateDict weights_of(const OnnxModel& model);

/// What the numbers of an output are, by the node that makes them.
enum class OnnxScores : uint8_t {
  unknown,
  probabilities,      ///< of Softmax or Sigmoid
  log_probabilities,  ///< of LogSoftmax
};
TD_API OnnxScores scores_of(const OnnxModel& model, size_t output);

}  // namespace tandem::onnx
