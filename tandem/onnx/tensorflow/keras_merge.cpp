// SPDX-License-Identifier: Apache-2.0
// Keras's layers of several inputs as nodes.
#include "tandem/onnx/tensorflow/keras_internal.h"

namespace tandem::onnx {

using Values = KerasBuilder::Values;

Values KerasBuilder::merge(const KerasCall& c) {
  const char* op = c.type == "Add" || c.type == "Average" ? "AddV2"
                   : c.type == "Subtract"                 ? "Sub"
                   : c.type == "Multiply"                 ? "Mul"
                                                          : c.type.c_str();
  std::string y = c.in(0);
  for (size_t i = 1; i < c.inputs.size(); ++i) y = node(c, op, {y, c.inputs[i]});
  if (c.type == "Average")
    y = node(c, "RealDiv", {y, number(static_cast<double>(c.inputs.size()))});
  return {y};
}
Values KerasBuilder::concatenate(const KerasCall& c) {
  c.in();
  return {onnx(c, "Concat", c.inputs, {onnx_int("axis", c.whole("axis", -1))})};
}

Values KerasBuilder::dot(const KerasCall& c) {
  return {node(
      c, "Dot", {c.in(0), c.in(1)},
      {onnx_ints("axes", c.list("axes", 2, -1)), onnx_int("normalize", c.flag("normalize", false))},
      kOnnxKeras)};
}

}  // namespace tandem::onnx
