// SPDX-License-Identifier: Apache-2.0
// A LoadedModel as a compiled program: what `tandem predict` and `tandem bench` call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/recipe/loaded_model.h"

namespace tandem {
class Executable;
}
namespace tandem::recipe {

/// Calls LoadedModel::run() as compile() does. A model from a file that cannot be one program runs
/// in parts or op by op (onnx/runner.h).
class TD_API CompiledForward {
 public:
  explicit CompiledForward(const LoadedModel& model);
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  /// Of the call made last: "whole", "parts" or "eager".
  const char* way() const;
  /// One line: why the call made last was not one program, and what that costs; "" where it was.
  std::string note() const;
  /// The program that ran last; nullptr where there is none.
  Ref<Executable> executable() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::recipe
