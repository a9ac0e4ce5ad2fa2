// SPDX-License-Identifier: Apache-2.0
// A call of a function of keras.ops that is being built: shared by the functions and their table.
#pragma once

#include "tandem/onnx/tensorflow/keras_internal.h"

namespace tandem::onnx {

/// One operation: its arguments as values, and what its function needs to make nodes.
struct KerasOperation {
  KerasBuilder& b;
  const KerasCall& c;
  std::vector<std::string> in;

  using Values = KerasBuilder::Values;
  using Function = Values (*)(KerasOperation&);
  /// What stands among the arguments besides values: numbers; numbers that are floating even where
  /// they are whole; lists of whole numbers; indices, which the function reads itself.
  enum class Takes : uint8_t { numbers, floats, lists, indices };
  struct Row {
    const char* op = nullptr;  ///< a node with the arguments as inputs, in this domain
    const char* domain = kOnnxTf;
    Function function = nullptr;
    Takes takes = Takes::numbers;
    /// A number of the configuration, as the node's attribute or, without a name, its last input.
    const char *key = nullptr, *attribute = "";
    double otherwise = 0;
  };
  static const Row* find(std::string_view type);

  std::string tf(const char* op, Values v, OnnxAttributes a = {}) {
    return b.node(c, op, std::move(v), std::move(a));
  }
  std::string onnx(const char* op, Values v, OnnxAttributes a = {}) {
    return b.onnx(c, op, std::move(v), std::move(a));
  }
  std::string keras(const char* op, Values v, OnnxAttributes a = {}) {
    return b.node(c, op, std::move(v), std::move(a), kOnnxKeras);
  }
  std::string ints(const std::vector<int64_t>& v) { return b.numbers(v); }
  const std::string& x(size_t i = 0) {
    if (i >= in.size()) lacks("this call");
    return in[i];
  }
  bool whole_input() const { return !c.find("axis") || c.find("axis")->is_null(); }
  [[noreturn]] void lacks(const std::string& what) { b.lacks(c, what); }

  Values slices();
};

}  // namespace tandem::onnx
