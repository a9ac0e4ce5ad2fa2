// SPDX-License-Identifier: Apache-2.0
// Keras's layers of several inputs, and functions of keras.ops, as nodes.
#include <unordered_map>

#include "tandem/onnx/tensorflow/keras_internal.h"

namespace tandem::onnx {

using io::Json;
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

// Functions of keras.ops that were called on a layer's value.
Values KerasBuilder::operation(const KerasCall& c) {
  static const std::unordered_map<std::string_view, const char*> all = {
      {"Add", "AddV2"},
      {"Subtract", "Sub"},
      {"Multiply", "Mul"},
      {"Divide", "RealDiv"},
      {"TrueDivide", "RealDiv"},
      {"Power", "Pow"},
      {"Maximum", "Maximum"},
      {"Minimum", "Minimum"},
      {"Matmul", "BatchMatMulV2"},
      {"Relu", "Relu"},
      {"Relu6", "Relu6"},
      {"Sigmoid", "Sigmoid"},
      {"Tanh", "Tanh"},
      {"Exp", "Exp"},
      {"Log", "Log"},
      {"Sqrt", "Sqrt"},
      {"Rsqrt", "Rsqrt"},
      {"Square", "Square"},
      {"Absolute", "Abs"},
      {"Abs", "Abs"},
      {"Negative", "Neg"},
      {"Softplus", "Softplus"},
      {"Erf", "Erf"},
      {"Sin", "Sin"},
      {"Cos", "Cos"},
      {"Floor", "Floor"},
  };
  const auto it = all.find(c.type);
  if (it == all.end()) lacks(c, "this function of keras.ops");
  Values in;
  size_t next = 0;
  for (const Json* a : c.arguments) {
    if (!a)
      in.push_back(c.in(next++));
    else if (a->as_int() || a->as_double())
      in.push_back(number(io::number_of(a)));
    else
      lacks(c, "an argument that is not a number");
  }
  return {node(c, it->second, std::move(in))};
}

}  // namespace tandem::onnx
