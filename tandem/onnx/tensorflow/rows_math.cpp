// SPDX-License-Identifier: Apache-2.0
// TensorFlow's arithmetic: pointwise ops that are ours by another name, reductions, matmuls, casts.
#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {
std::vector<OnnxValue> run_node_as(OnnxCall& c, const char* domain, int opset, const char* op,
                                   std::vector<OnnxValue> in, OnnxAttributes attributes,
                                   size_t outputs) {
  OnnxNode node;
  node.op = op;
  node.domain = domain;
  node.name = c.node().name;
  node.version = opset;
  node.attributes = std::move(attributes);
  node.inputs.assign(in.size(), "input");
  node.outputs.assign(outputs, "output");
  OnnxCall inner(node, c.frame());
  inner.in = std::move(in);
  inner.out.resize(outputs);
  if (const OnnxRow* row = find_onnx_row(domain, op, opset)) {
    row->import(inner);
  } else {
    const OpDef* direct = *domain ? nullptr : find_onnx_op(op);
    TD_ASSERT(direct);
    run_direct(inner, *direct);
  }
  return std::move(inner.out);
}
}  // namespace

std::vector<OnnxValue> run_as_onnx(OnnxCall& c, const char* op, std::vector<OnnxValue> in,
                                   OnnxAttributes attributes, size_t outputs) {
  return run_node_as(c, "", 23, op, std::move(in), std::move(attributes), outputs);
}
std::vector<OnnxValue> run_as_tf(OnnxCall& c, const char* op, std::vector<OnnxValue> in,
                                 OnnxAttributes attributes, size_t outputs) {
  return run_node_as(c, kOnnxTf, 1, op, std::move(in), std::move(attributes), outputs);
}

Tensor as_onnx(OnnxCall& c, const char* op, std::vector<OnnxValue> in, OnnxAttributes attributes) {
  return run_as_onnx(c, op, std::move(in), std::move(attributes))[0].tensor();
}

namespace {

template <const OpDef& op>
void tf_direct(OnnxCall& c) {
  run_direct(c, op);
}

/// An ONNX op with the same inputs and no attributes of its own.
template <int n>
struct OnnxName {
  char text[n] = {};
  constexpr OnnxName(const char (&name)[n]) {
    for (int i = 0; i < n; ++i) text[i] = name[i];
  }
};
template <OnnxName name>
void tf_same(OnnxCall& c) {
  c.set(0, run_as_onnx(c, name.text, c.in)[0]);
}
/// The same, whose attributes have the same names, too.
template <OnnxName name>
void tf_same_attributes(OnnxCall& c) {
  c.set(0, run_as_onnx(c, name.text, c.in, c.node().attributes)[0]);
}

/// `axes` may be empty: then nothing is reduced.
template <OnnxName name>
void tf_reduce(OnnxCall& c) {
  const int64_t keep = c.attr("keep_dims", 0);
  c.set(0, run_as_onnx(c, name.text, {c.value(0), c.value(1)},
                       {onnx_int("keepdims", keep), onnx_int("noop_with_empty_axes", 1)})[0]);
}

void tf_bias_add(OnnxCall& c) {
  const Tensor x = c.x(0);
  Tensor b = c.x(1);
  if (c.attr_text("data_format", "NHWC") == "NCHW" && x.dim() > 2) {
    Shape s(1, -1);
    for (int d = 2; d < x.dim(); ++d) s.push_back(1);
    b = b.reshape(s);
  }
  c.set_like(0, x + b);
}

void tf_leaky_relu(OnnxCall& c) { c.set(0, leaky_relu(c.x(0), c.attr_float("alpha", 0.2))); }
void tf_elu(OnnxCall& c) { c.set(0, elu(c.x(0))); }
void tf_softmax(OnnxCall& c) { c.set(0, softmax(c.x(0), -1)); }
void tf_log_softmax(OnnxCall& c) { c.set(0, log_softmax(c.x(0), -1)); }
void tf_squared_difference(OnnxCall& c) { c.set_like(0, square(c.x(0) - c.x(1))); }
void tf_div_no_nan(OnnxCall& c) {
  const Tensor b = c.x(1);
  c.set_like(0, where(b == 0, 0, c.x(0) / b));
}
void tf_mul_no_nan(OnnxCall& c) {
  const Tensor b = c.x(1);
  c.set_like(0, where(b == 0, 0, c.x(0) * b));
}
void tf_xdivy(OnnxCall& c) {
  const Tensor a = c.x(0);
  c.set_like(0, where(a == 0, 0, a / c.x(1)));
}
void tf_clip_by_value(OnnxCall& c) { c.set_like(0, minimum(maximum(c.x(0), c.x(1)), c.x(2))); }

void tf_matmul(OnnxCall& c) {
  Tensor a = c.x(0), b = c.x(1);
  if (c.attr("transpose_a", c.attr("adj_x", 0))) a = a.transpose(-1, -2);
  if (c.attr("transpose_b", c.attr("adj_y", 0))) b = b.transpose(-1, -2);
  c.set_like(0, matmul(a, b));
}

void tf_cast(OnnxCall& c) {
  c.set(0, run_as_onnx(c, "Cast", {c.value(0)}, {onnx_int("to", c.attr("DstT", 0))})[0]);
}

template <OnnxName name>
void tf_arg_best(OnnxCall& c) {
  const Tensor y = as_onnx(c, name.text, {c.value(0)},
                           {onnx_int("axis", c.has(1) ? c.int_at(1) : 0), onnx_int("keepdims", 0)});
  const auto type =
      static_cast<OnnxType>(c.attr("output_type", static_cast<int64_t>(OnnxType::i64)));
  c.set(0, y.to(info_of(type).carrier), type);
}

// The first version chooses whole rows by a vector.
void tf_select(OnnxCall& c) {
  Tensor condition = c.x(0);
  const Tensor a = c.x(1);
  if (c.node().op == "Select" && condition.dim() == 1 && a.dim() > 1) {
    Shape s(condition.shape(0));
    for (int d = 1; d < a.dim(); ++d) s.push_back(1);
    condition = condition.reshape(s);
  }
  c.set(0, where(condition, a, c.x(2)), c.type(1));
}

void tf_where(OnnxCall& c) {
  c.set(0, contiguous(as_onnx(c, "NonZero", {c.value(0)}).transpose(0, 1)));
}

void tf_add_n(OnnxCall& c) {
  Tensor y = c.x(0);
  for (size_t i = 1; i < c.in.size(); ++i) y = y + c.x(i);
  c.set_like(0, y);
}

void tf_range(OnnxCall& c) { c.set(0, run_as_onnx(c, "Range", c.in)[0]); }

void tf_lin_space(OnnxCall& c) {
  const int64_t n = c.int_at(2);
  check_onnx_size(onnx_shape({n}));
  c.set(0, linspace(c.number(0), c.number(1), n, c.value(0).tensor().dtype()));
}

template <bool normal>
void tf_random(OnnxCall& c) {
  const Shape s = onnx_shape(c.ints(0));
  const DType dtype = info_of(static_cast<OnnxType>(c.attr("dtype", 1))).carrier;
  c.set(0, (normal ? randn(s) : rand(s)).to(dtype));
}

void tf_l2_loss(OnnxCall& c) { c.set_like(0, sum(square(c.x(0))) / 2); }

}  // namespace

// table: a row for each op
std::span<const OnnxRow> onnx_tf_pointwise_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTf, "Abs", 1, 0, tf_direct<op::abs>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Neg", 1, 0, tf_direct<op::neg>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sign", 1, 0, tf_direct<op::sign>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Floor", 1, 0, tf_direct<op::floor>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Ceil", 1, 0, tf_direct<op::ceil>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Round", 1, 0, tf_direct<op::round>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Rint", 1, 0, tf_direct<op::round>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Square", 1, 0, tf_direct<op::square>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sqrt", 1, 0, tf_direct<op::sqrt>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Rsqrt", 1, 0, tf_direct<op::rsqrt>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Reciprocal", 1, 0, tf_direct<op::reciprocal>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Inv", 1, 0, tf_direct<op::reciprocal>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Exp", 1, 0, tf_direct<op::exp>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Expm1", 1, 0, tf_direct<op::expm1>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Log", 1, 0, tf_direct<op::log>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Log1p", 1, 0, tf_direct<op::log1p>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sin", 1, 0, tf_direct<op::sin>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Cos", 1, 0, tf_direct<op::cos>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Tan", 1, 0, tf_direct<op::tan>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Asin", 1, 0, tf_direct<op::asin>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Acos", 1, 0, tf_direct<op::acos>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Atan", 1, 0, tf_direct<op::atan>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Atan2", 1, 0, tf_direct<op::atan2>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sinh", 1, 0, tf_direct<op::sinh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Cosh", 1, 0, tf_direct<op::cosh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Tanh", 1, 0, tf_direct<op::tanh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Asinh", 1, 0, tf_direct<op::asinh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Acosh", 1, 0, tf_direct<op::acosh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Atanh", 1, 0, tf_direct<op::atanh>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sigmoid", 1, 0, tf_direct<op::sigmoid>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Relu", 1, 0, tf_direct<op::relu>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Relu6", 1, 0, tf_direct<op::relu6>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Selu", 1, 0, tf_direct<op::selu>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Softsign", 1, 0, tf_direct<op::softsign>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Softplus", 1, 0, tf_same<"Softplus">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Erf", 1, 0, tf_direct<op::erf>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Erfc", 1, 0, tf_direct<op::erfc>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Erfinv", 1, 0, tf_direct<op::erfinv>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Lgamma", 1, 0, tf_direct<op::lgamma>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Digamma", 1, 0, tf_direct<op::digamma>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "IsNan", 1, 0, tf_direct<op::isnan>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "IsInf", 1, 0, tf_direct<op::isinf>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "IsFinite", 1, 0, tf_direct<op::isfinite>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LogicalNot", 1, 0, tf_direct<op::logical_not>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LogicalAnd", 1, 0, tf_direct<op::logical_and>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LogicalOr", 1, 0, tf_direct<op::logical_or>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "BitwiseAnd", 1, 0, tf_direct<op::bitwise_and>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "BitwiseOr", 1, 0, tf_direct<op::bitwise_or>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "BitwiseXor", 1, 0, tf_direct<op::bitwise_xor>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Invert", 1, 0, tf_direct<op::bitwise_not>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Add", 1, 0, tf_direct<op::add>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "AddV2", 1, 0, tf_direct<op::add>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Sub", 1, 0, tf_direct<op::sub>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Mul", 1, 0, tf_direct<op::mul>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Maximum", 1, 0, tf_same<"Max">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Minimum", 1, 0, tf_same<"Min">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Equal", 1, 0, tf_same<"Equal">, {kOnnxAny, kOnnxAny, "~incompatible_shape_error"}},
      {kOnnxTf,
       "NotEqual",
       1,
       0,
       tf_direct<op::ne>,
       {kOnnxAny, kOnnxAny, "~incompatible_shape_error"}},
      {kOnnxTf, "Less", 1, 0, tf_direct<op::lt>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LessEqual", 1, 0, tf_direct<op::le>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Greater", 1, 0, tf_direct<op::gt>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "GreaterEqual", 1, 0, tf_direct<op::ge>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Pow", 1, 0, tf_same<"Pow">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "RealDiv", 1, 0, tf_same<"Div">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Div", 1, 0, tf_same<"Div">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TruncateDiv", 1, 0, tf_same<"Div">, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "FloorDiv", 1, 0, tf_direct<op::floor_divide>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "FloorMod", 1, 0, tf_direct<op::remainder>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Mod", 1, 0, tf_direct<op::fmod>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TruncateMod", 1, 0, tf_direct<op::fmod>, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Xlogy", 1, 0, tf_direct<op::xlogy>, {kOnnxAny, kOnnxAny, ""}},
  };
  return kRows;
}

std::span<const OnnxRow> onnx_tf_math_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTf, "BiasAdd", 1, 0, tf_bias_add, {kOnnxAny, kOnnxAny, "data_format"}},
      {kOnnxTf, "AddN", 1, 0, tf_add_n, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LeakyRelu", 1, 0, tf_leaky_relu, {kOnnxAny, kOnnxAny, "alpha"}},
      {kOnnxTf, "Elu", 1, 0, tf_elu, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Softmax", 1, 0, tf_softmax, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LogSoftmax", 1, 0, tf_log_softmax, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "SquaredDifference", 1, 0, tf_squared_difference, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "DivNoNan", 1, 0, tf_div_no_nan, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "MulNoNan", 1, 0, tf_mul_no_nan, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Xdivy", 1, 0, tf_xdivy, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "ClipByValue", 1, 0, tf_clip_by_value, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "MatMul", 1, 0, tf_matmul, {kOnnxAny, kOnnxAny, "transpose_a transpose_b"}},
      {kOnnxTf, "BatchMatMul", 1, 0, tf_matmul, {kOnnxAny, kOnnxAny, "adj_x adj_y"}},
      {kOnnxTf, "BatchMatMulV2", 1, 0, tf_matmul, {kOnnxAny, kOnnxAny, "adj_x adj_y"}},
      {kOnnxTf, "BatchMatMulV3", 1, 0, tf_matmul, {kOnnxAny, kOnnxAny, "adj_x adj_y"}},
      {kOnnxTf, "Einsum", 1, 0, tf_same_attributes<"Einsum">, {kOnnxAny, kOnnxAny, "equation"}},
      {kOnnxTf, "Cast", 1, 0, tf_cast, {kOnnxAny, kOnnxAny, "DstT"}},
      {kOnnxTf, "Sum", 1, 0, tf_reduce<"ReduceSum">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "Mean", 1, 0, tf_reduce<"ReduceMean">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "Prod", 1, 0, tf_reduce<"ReduceProd">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "Max", 1, 0, tf_reduce<"ReduceMax">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "Min", 1, 0, tf_reduce<"ReduceMin">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "Any", 1, 0, tf_reduce<"ReduceMax">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "All", 1, 0, tf_reduce<"ReduceMin">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "EuclideanNorm", 1, 0, tf_reduce<"ReduceL2">, {kOnnxAny, kOnnxAny, "keep_dims"}},
      {kOnnxTf, "ArgMax", 1, 0, tf_arg_best<"ArgMax">, {kOnnxAny, kOnnxAny, "output_type"}},
      {kOnnxTf, "ArgMin", 1, 0, tf_arg_best<"ArgMin">, {kOnnxAny, kOnnxAny, "output_type"}},
      {kOnnxTf,
       "Cumsum",
       1,
       0,
       tf_same_attributes<"CumSum">,
       {kOnnxAny, kOnnxAny, "exclusive reverse"}},
      {kOnnxTf, "Select", 1, 0, tf_select, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "SelectV2", 1, 0, tf_select, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Where", 1, 0, tf_where, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Range", 1, 0, tf_range, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "LinSpace", 1, 0, tf_lin_space, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "L2Loss", 1, 0, tf_l2_loss, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "RandomUniform", 1, 0, tf_random<false>, {kOnnxAny, kOnnxAny, "dtype ~seed seed2"}},
      {kOnnxTf,
       "RandomStandardNormal",
       1,
       0,
       tf_random<true>,
       {kOnnxAny, kOnnxAny, "dtype ~seed seed2"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
