// SPDX-License-Identifier: Apache-2.0
// ONNX ops that create tensors: constants, ranges, one-hot codes.
#include <cmath>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void constant_of(OnnxCall& c) {
  if (const auto* a = c.attribute("value")) return c.set(0, a->tensor);
  if (const auto* a = c.attribute("sparse_value")) return c.set(0, a->tensor);
  if (c.attribute("value_float"))
    return c.set(0, tensor(static_cast<float>(c.attr_float("value_float", 0))));
  if (c.attribute("value_floats")) return c.set(0, tensor(c.attr_floats("value_floats")));
  if (c.attribute("value_int")) return c.set(0, tensor(c.attr("value_int", 0)));
  if (c.attribute("value_ints")) return c.set(0, tensor(c.attr_ints("value_ints")));
  if (c.attribute("value_string"))
    return c.set(0, OnnxValue(OnnxStrings{{}, {c.attr_text("value_string")}}));
  if (c.attribute("value_strings")) {
    std::vector<std::string> v = c.attr_texts("value_strings");
    const auto n = static_cast<int64_t>(v.size());
    return c.set(0, OnnxValue(OnnxStrings{{n}, std::move(v)}));
  }
  TD_FAIL(Format, "expected a value");
}

void constant_of_shape(OnnxCall& c) {
  const Shape s = onnx_shape(c.ints(0));
  const OnnxAttribute* a = c.attribute("value");
  if (!a) return c.set(0, zeros(s));
  const Tensor v = constant(a->tensor.tensor());
  TD_CHECK(v.numel() == 1, Shape, "expected one value, got {}", a->tensor.describe());
  c.set(0, contiguous(expand(v.reshape(Shape()), s)), a->tensor.type());
}

void range(OnnxCall& c) {
  const OnnxType type = c.type(0);
  const Tensor start = c.value(0).tensor();
  if (is_floating(start.dtype())) {
    const double a = c.number(0), b = c.number(1), d = c.has(2) ? c.number(2) : 1;
    TD_CHECK(d != 0, Value, "expected a step other than 0");
    const double n = std::max(0.0, std::ceil((b - a) / d));
    TD_CHECK(n < 1e12, Memory, "asks for {} elements", n);
    const Tensor i = arange(0, static_cast<int64_t>(n), 1, DType::f64);
    return c.set(0, (i * d + a).to(start.dtype()), type);
  }
  const int64_t a = c.int_at(0), b = c.int_at(1), d = c.has(2) ? c.int_at(2) : 1;
  TD_CHECK(d != 0, Value, "expected a step other than 0");
  const double span = static_cast<double>(b) - static_cast<double>(a);
  const double n = std::max(0.0, std::ceil(span / static_cast<double>(d)));
  TD_CHECK(n < 1e12, Memory, "asks for {} elements", n);
  c.set(0, (arange(0, static_cast<int64_t>(n), 1, DType::i64) * d + a).to(start.dtype()), type);
}

void eye_like(OnnxCall& c) {
  const std::vector<int64_t> s = c.value(0).shape();
  TD_CHECK(s.size() == 2, Shape, "expected a matrix, got {}", c.value(0).describe());
  const auto type = static_cast<OnnxType>(c.attr("dtype", static_cast<int64_t>(c.type(0))));
  const int64_t k = c.attr("k", 0);
  const Tensor i = arange(0, s[0], 1, DType::i64).reshape({s[0], 1});
  const Tensor j = arange(0, s[1], 1, DType::i64);
  c.set(0, eq(i + k, j).to(info_of(type).carrier), type);
}

void one_hot_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const double wanted = c.number(1);
  TD_CHECK(wanted > 0 && wanted < 1e12, Value, "expected a positive depth, got {}", wanted);
  const auto depth = static_cast<int64_t>(wanted);
  const Tensor values = c.x(2);
  const int axis = normalize_dim(c.attr("axis", -1), x.dim() + 1);
  Shape s, full_shape = x.shape();
  full_shape.insert(axis, depth);
  check_onnx_size(full_shape);
  for (int d = 0; d <= x.dim(); ++d) s.push_back(d == axis ? depth : 1);
  Tensor i = x.to(DType::i64);
  i = where(i < 0, i + depth, i).unsqueeze(axis);
  const Tensor hit = eq(i, arange(0, depth, 1, DType::i64).reshape(s));
  c.set(0, where(hit, values.select(0, 1), values.select(0, 0)), c.type(2));
}

}  // namespace

std::span<const OnnxRow> onnx_create_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "Constant",
       1,
       0,
       constant_of,
       {0, 1,
        "sparse_value value value_float value_floats value_int value_ints value_string "
        "value_strings"}},
      settings_from(0, {"",
                        "ConstantOfShape",
                        9,
                        0,
                        constant_of_shape,
                        {1, 1, "value"},
                        &op::fill,
                        export_fill}),
      settings_from(0,
                    {"", "Range", 11, 0, range, {3, 1, "~stash_type"}, &op::arange, export_arange}),
      settings_from(0, {kOnnxMicrosoft, "Range", 1, 0, range, {3, 1, ""}}),
      {"", "EyeLike", 9, 0, eye_like, {1, 1, "dtype k"}, &op::eye, export_eye},
      settings_from(1,
                    {"", "OneHot", 9, 0, one_hot_of, {3, 1, "axis"}, &op::one_hot, export_one_hot}),
      exported(op::linspace, export_linspace),
  };
  return kRows;
}

}  // namespace tandem::onnx
