// SPDX-License-Identifier: Apache-2.0
// TFLite's operators that compute element by element, reduce, compare and choose: most of them are
// TensorFlow's op of another name.
#include "tandem/onnx/tflite/builder_internal.h"

namespace tandem::onnx {
namespace {

using Codes = TfliteCodes;

/// The op that the row names, with all inputs and results.
void tflite_same(TfliteCall& c) {
  const Names out = c.many(c.row.node, kOnnxTf, c.all(), c.op.out.size());
  for (size_t i = 0; i < out.size(); ++i) c.set(i, out[i]);
}
/// ONNX's op of that name.
void tflite_as_onnx(TfliteCall& c) { c.set(0, c.onnx(c.row.node, c.all())); }

void tflite_gelu(TfliteCall& c) {
  c.set(0, c.onnx("Gelu", {c.x(0)}, {onnx_text("approximate", c.flag(0) ? "tanh" : "none")}));
}
void tflite_leaky_relu(TfliteCall& c) {
  c.set(0, c.tf("LeakyRelu", {c.x(0)}, {onnx_float("alpha", c.real(0))}));
}
void tflite_bounded(TfliteCall& c) {
  const bool symmetric = std::string_view(c.row.name) == "RELU_N1_TO_1";
  c.set(0, c.tf("ClipByValue", {c.x(0), c.number(symmetric ? -1 : 0), c.number(1)}));
}
void tflite_softmax(TfliteCall& c) {
  const float beta = c.real(0);
  c.set(0, c.tf("Softmax", {beta == 1 ? c.x(0) : c.tf("Mul", {c.x(0), c.number(beta)})}));
}
void tflite_cast(TfliteCall& c) {
  if (c.b.for_graph() && (c.tensor(0).is_quantised() || c.result(0).is_quantised()))
    c.lacks("a cast of codes");
  c.set(0, c.tf("Cast", {c.x(0)}, {onnx_int("DstT", static_cast<int64_t>(c.result(0).type))}));
}
void tflite_reduce(TfliteCall& c) {
  c.set(0, c.tf(c.row.node, {c.x(0), c.x(1)}, {onnx_int("keep_dims", c.flag(0))}));
}
void tflite_arg_best(TfliteCall& c) {
  c.set(0, c.tf(c.row.node, {c.x(0), c.x(1)},
                {onnx_int("output_type", static_cast<int64_t>(c.result(0).type))}));
}
void tflite_cumsum(TfliteCall& c) {
  c.set(0, c.tf("Cumsum", {c.x(0), c.x(1)},
                {onnx_int("exclusive", c.flag(0)), onnx_int("reverse", c.flag(1))}));
}
void tflite_top_k(TfliteCall& c) {
  const Names out = c.many(
      "TopKV2", kOnnxTf, {c.x(0), c.x(1)}, 2,
      {onnx_int("index_type",
                static_cast<int64_t>(c.op.out.size() > 1 ? c.result(1).type : OnnxType::i32))});
  c.set(0, out[0]);
  c.set(1, out[1]);
}
void tflite_one_hot(TfliteCall& c) {
  c.set(0, c.tf("OneHot", c.all(), {onnx_int("axis", c.option(0))}));
}
void tflite_batch_matmul(TfliteCall& c) {
  c.set(0, c.tf("BatchMatMulV2", {c.x(0), c.x(1)},
                {onnx_int("adj_x", c.flag(0)), onnx_int("adj_y", c.flag(1))}));
}
// x / max(|x|, 1e-6) along the last dimension.
void tflite_l2_norm(TfliteCall& c) {
  const std::string x = c.x(0);
  const std::string sum =
      c.tf("Sum", {c.tf("Square", {x}), c.list({-1})}, {onnx_int("keep_dims", 1)});
  c.set(0, c.tf("RealDiv", {x, c.tf("Maximum", {c.tf("Sqrt", {sum}), c.number(1e-6)})}));
}
void tflite_local_response(TfliteCall& c) {
  c.set(0, c.tf("LRN", {c.x(0)},
                {onnx_int("depth_radius", c.option(0)), onnx_float("bias", c.real(1)),
                 onnx_float("alpha", c.real(2)), onnx_float("beta", c.real(3))}));
}
// The result of codes is of other codes, or of floats: what x() and set() do.
void tflite_convert(TfliteCall& c) {
  const bool narrow = c.tensor(0).type == OnnxType::f16 && c.result(0).type == OnnxType::f32;
  if (!narrow)
    return c.set(0, c.as_numbers && c.is_constant(0) ? c.x(0) : c.onnx("Identity", {c.x(0)}));
  if (c.is_constant(0)) return c.set(0, c.wide(0));
  c.set(0, c.tf("Cast", {c.x(0)}, {onnx_int("DstT", static_cast<int64_t>(OnnxType::f32))}));
}
void tflite_densify(TfliteCall& c) { c.set(0, c.x(0)); }  // constants are dense here

}  // namespace

std::span<const TfliteRow> tflite_plain_rows() {
  static constexpr TfliteRow kRows[] = {
      {0, "ADD", tflite_same, "AddV2", 0, Codes::numbers, tflite_sum_codes},
      {41, "SUB", tflite_same, "Sub", 0, Codes::numbers, tflite_sum_codes},
      {18, "MUL", tflite_same, "Mul", 0, Codes::numbers, tflite_product_codes},
      {42, "DIV", tflite_same, "RealDiv", 0, Codes::numbers, tflite_quotient_codes},
      {90, "FLOOR_DIV", tflite_same, "FloorDiv", -1, Codes::numbers, tflite_raw_signed},
      {95, "FLOOR_MOD", tflite_same, "FloorMod", -1, Codes::numbers, tflite_raw_signed},
      {78, "POW", tflite_same, "Pow"},
      {99, "SQUARED_DIFFERENCE", tflite_same, "SquaredDifference", -1, Codes::numbers,
       tflite_squared_codes},
      {55, "MAXIMUM", tflite_same, "Maximum", -1, Codes::moved, tflite_raw_codes},
      {57, "MINIMUM", tflite_same, "Minimum", -1, Codes::moved, tflite_raw_codes},
      {106, "ADD_N", tflite_same, "AddN"},
      {156, "ATAN2", tflite_same, "Atan2"},
      {101, "ABS", tflite_same, "Abs", -1, Codes::numbers, tflite_absolute_codes},
      {59, "NEG", tflite_same, "Neg", -1, Codes::numbers, tflite_raw_signed},
      {158, "SIGN", tflite_same, "Sign"},
      {8, "FLOOR", tflite_same, "Floor"},
      {104, "CEIL", tflite_same, "Ceil"},
      {116, "ROUND", tflite_same, "Round"},
      {92, "SQUARE", tflite_same, "Square"},
      {75, "SQRT", tflite_same, "Sqrt", -1, Codes::numbers, tflite_sqrt_codes},
      {76, "RSQRT", tflite_same, "Rsqrt", -1, Codes::numbers, tflite_rsqrt_codes},
      {47, "EXP", tflite_same, "Exp", -1, Codes::numbers, tflite_exp_codes},
      {73, "LOG", tflite_same, "Log", -1, Codes::numbers, tflite_log_codes},
      {66, "SIN", tflite_same, "Sin"},
      {108, "COS", tflite_same, "Cos"},
      {28, "TANH", tflite_same, "Tanh", -1, Codes::numbers, tflite_curve_codes},
      {14, "LOGISTIC", tflite_same, "Sigmoid", -1, Codes::numbers, tflite_curve_codes},
      {19, "RELU", tflite_same, "Relu", -1, Codes::numbers, tflite_rescaled_codes},
      {21, "RELU6", tflite_same, "Relu6", -1, Codes::numbers, tflite_rescaled_codes},
      {20, "RELU_N1_TO_1", tflite_bounded, nullptr, -1, Codes::numbers, tflite_rescaled_codes},
      {152, "RELU_0_TO_1", tflite_bounded, nullptr, -1, Codes::numbers, tflite_rescaled_codes},
      {111, "ELU", tflite_same, "Elu", -1, Codes::numbers, tflite_elu_codes},
      {98, "LEAKY_RELU", tflite_leaky_relu, nullptr, -1, Codes::numbers, tflite_leaky_codes},
      {54, "PRELU", tflite_as_onnx, "PRelu", -1, Codes::numbers, tflite_prelu_codes,
       tflite_graph_prelu},
      {117, "HARD_SWISH", tflite_as_onnx, "HardSwish", -1, Codes::numbers, tflite_hard_swish_codes,
       tflite_graph_hard_swish},
      {150, "GELU", tflite_gelu, nullptr, -1, Codes::numbers, tflite_gelu_codes, tflite_graph_gelu},
      {25, "SOFTMAX", tflite_softmax, nullptr, -1, Codes::numbers, tflite_softmax_codes},
      {50, "LOG_SOFTMAX", tflite_same, "LogSoftmax"},
      {11, "L2_NORMALIZATION", tflite_l2_norm, nullptr, 0, Codes::numbers, tflite_unit_codes},
      {13, "LOCAL_RESPONSE_NORMALIZATION", tflite_local_response},
      {53, "CAST", tflite_cast, nullptr, -1, Codes::any},
      {114, "QUANTIZE", tflite_convert, nullptr, -1, Codes::numbers, tflite_rescaled_codes},
      {6, "DEQUANTIZE", tflite_convert},
      {124, "DENSIFY", tflite_densify, nullptr, -1, Codes::any},
      {40, "MEAN", tflite_reduce, "Mean", -1, Codes::numbers, tflite_reduced_codes},
      {74, "SUM", tflite_reduce, "Sum", -1, Codes::numbers, tflite_reduced_codes},
      {81, "REDUCE_PROD", tflite_reduce, "Prod", -1, Codes::numbers, tflite_product_of_codes},
      {82, "REDUCE_MAX", tflite_reduce, "Max", -1, Codes::moved},
      {89, "REDUCE_MIN", tflite_reduce, "Min", -1, Codes::moved},
      {91, "REDUCE_ANY", tflite_reduce, "Any"},
      {140, "REDUCE_ALL", tflite_reduce, "All"},
      {56, "ARG_MAX", tflite_arg_best, "ArgMax", -1, Codes::moved},
      {79, "ARG_MIN", tflite_arg_best, "ArgMin", -1, Codes::moved},
      {128, "CUMSUM", tflite_cumsum},
      {48, "TOPK_V2", tflite_top_k, nullptr, -1, Codes::moved},
      {85, "ONE_HOT", tflite_one_hot},
      {126, "BATCH_MATMUL", tflite_batch_matmul, nullptr, -1, Codes::numbers, tflite_batch_codes},
      {71, "EQUAL", tflite_same, "Equal", -1, Codes::moved, tflite_compared_codes},
      {72, "NOT_EQUAL", tflite_same, "NotEqual", -1, Codes::moved, tflite_compared_codes},
      {58, "LESS", tflite_same, "Less", -1, Codes::moved, tflite_compared_codes},
      {63, "LESS_EQUAL", tflite_same, "LessEqual", -1, Codes::moved, tflite_compared_codes},
      {61, "GREATER", tflite_same, "Greater", -1, Codes::moved, tflite_compared_codes},
      {62, "GREATER_EQUAL", tflite_same, "GreaterEqual", -1, Codes::moved, tflite_compared_codes},
      {84, "LOGICAL_OR", tflite_same, "LogicalOr"},
      {86, "LOGICAL_AND", tflite_same, "LogicalAnd"},
      {87, "LOGICAL_NOT", tflite_same, "LogicalNot"},
      {160, "BITWISE_XOR", tflite_same, "BitwiseXor"},
      {161, "RIGHT_SHIFT", tflite_same, "RightShift"},
      {64, "SELECT", tflite_same, "Select", -1, Codes::moved},
      {123, "SELECT_V2", tflite_same, "SelectV2", -1, Codes::moved},
      {109, "WHERE", tflite_same, "Where"},
  };
  return kRows;
}

}  // namespace tandem::onnx
