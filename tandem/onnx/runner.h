// SPDX-License-Identifier: Apache-2.0
// Runs a model as one compiled program where that is possible, else in compiled parts, else op by
// op. It finds out by itself which, and says why. `tandem predict` and `tandem bench` run models
// this way.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/onnx/onnx.h"

namespace tandem {
class Executable;
}
namespace tandem::onnx {

enum class OnnxWay : uint8_t {
  whole,  ///< one compiled program
  parts,  ///< nodes that read values run alone, those between them as compiled programs
  eager,  ///< op by op
};
TD_API const char* to_string(OnnxWay way);

/// Calls a model with compiled programs. The first call with inputs of new types and shapes traces
/// the model: If, Loop and Scan become cond, while_loop and scan. Sizes, axes, numbers of steps and
/// conditions that follow from a few numbers among the inputs are taken from these numbers; other
/// numbers lead to another program (of eight sets the model is compiled; with more of them such
/// inputs stay variable). What a trace cannot hold (sizes that depend on other values, texts, a
/// Loop that changes its shapes) splits the model into parts, or leaves it op by op. All ways give
/// the numbers of OnnxModel::run(); compiled programs may round differently
/// (CompileOptions::same_bits is false). A handle: copies share what was compiled.
class TD_API OnnxRunner {
 public:
  explicit OnnxRunner(OnnxModel model);
  const OnnxModel& model() const;

  /// As OnnxModel::run(), and with its errors.
  std::vector<OnnxValue> run(std::span<const OnnxValue> inputs);
  /// The same for models of tensors. Inside a trace the model becomes part of it.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);

  /// Of the call made last.
  OnnxWay way() const;
  /// Which node kept the model from being one program, and why; "" where it is one.
  std::string reason() const;
  /// One line: the model, its way, the reason and what that costs; "" where it is one program.
  std::string note() const;
  /// The program that ran last, of a part or the whole; nullptr where there is none.
  Ref<Executable> executable() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::onnx
