// SPDX-License-Identifier: Apache-2.0
// ONNX arithmetic without a single equivalent op: the old broadcasting by axis, integer division,
// variadic sums, bits of unsigned numbers, scans.
#include <cmath>
#include <limits>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kIntSignBit = std::numeric_limits<int64_t>::min();

/// Opset 1 to 6: b is broadcast only on request, from dimension `axis` on.
void old_binary(OnnxCall& c) {
  const OpDef* op = find_onnx_op(c.node().op);
  TD_ASSERT(op);
  if (c.attr("broadcast", 0) && c.attribute("axis")) {
    Tensor b = c.x(1);
    const int rank = c.x(0).dim();
    Shape shape = b.shape();
    for (int d = c.axis("axis", -1, rank) + b.dim(); d < rank; ++d) shape.push_back(1);
    c.in[1] = OnnxValue(b.reshape(shape), c.type(1));
  }
  if (c.node().op == "Div" && !is_floating(c.x(0).dtype()))
    c.set_like(0, trunc_divide(c.x(0), c.x(1)));
  else
    run_direct(c, *op);
}

// Quotient and remainder of 64-bit unsigned numbers.
Tensor unsigned_divide(const Tensor& a, const Tensor& b, bool rest) {
  const auto at_least = [](const Tensor& x, const Tensor& y) {
    return ge(bitwise_xor(x, kIntSignBit), bitwise_xor(y, kIntSignBit));
  };
  // Half of a is not negative; the quotient from it is at most one too small. b from 2^63 on goes
  // into a once at most.
  const Tensor half = bitwise_and(bitwise_right_shift(a, 1), std::numeric_limits<int64_t>::max());
  const Tensor large = b < 0;
  const Tensor guess = bitwise_left_shift(trunc_divide(half, where(large, 1, b)), 1);
  const Tensor q = where(large, 0, guess);
  const Tensor r = a - q * b;
  const Tensor more = at_least(r, b);
  return rest ? where(more, r - b, r) : q + more.to(DType::i64);
}

void divide(OnnxCall& c) {
  if (c.type(0) == OnnxType::u64)
    c.set_like(0, unsigned_divide(c.x(0), c.x(1), false));
  else if (info_of(c.type(0)).floating)
    run_direct(c, op::div);
  else
    c.set_like(0, trunc_divide(c.x(0), c.x(1)));
}

void modulo(OnnxCall& c) {
  const int64_t truncates = c.attr("fmod", 0);
  TD_CHECK(truncates == 0 || truncates == 1, Value, "expected 0 or 1 as fmod, got {}", truncates);
  if (c.type(0) == OnnxType::u64) return c.set_like(0, unsigned_divide(c.x(0), c.x(1), true));
  if (truncates) return c.set_like(0, fmod(c.x(0), c.x(1)));
  const Tensor divisor = c.x(1), y = remainder(c.x(0), divisor);
  if (!is_floating(y.dtype())) return c.set_like(0, y);
  c.set_like(0, where(y == 0, copysign(zeros_like(divisor), divisor), y));  // a zero has b's sign
}

// Squares and reciprocals have rows of their own. (So has the root, which makes something else of
// negative zeros and infinities.)
bool has_row_as_power(double n) { return n == 2 || n == -1; }

void power(OnnxCall& c) {
  const Tensor a = c.x(0), b = c.x(1);
  const bool floats = is_floating(a.dtype());
  if (floats && is_of_model(c, 1) && b.numel() == 1 && b.dim() <= a.dim() &&
      has_row_as_power(c.number(1)))
    c.set_like(0, pow(a, c.number(1)));
  else if (floats)
    c.set_like(0, pow(a, b.to(a.dtype())));
  else if (is_floating(b.dtype()))
    c.set_like(0, pow(a.to(DType::f64), b.to(DType::f64)));
  else
    c.set_like(0, pow(a, b));
}

template <Tensor (*f)(Operand, Operand, SourceLocation)>
void fold(OnnxCall& c) {
  TD_CHECK(!c.in.empty(), Value, "expected at least one input");
  const bool turn = c.type(0) == OnnxType::u64;
  auto at = [&](size_t i) { return turn ? bitwise_xor(c.x(i), kIntSignBit) : c.x(i); };
  Tensor y = at(0);
  for (size_t i = 1; i < c.in.size(); ++i) y = f(std::move(y), at(i), SourceLocation::here());
  c.set_like(0, turn ? bitwise_xor(y, kIntSignBit) : y);
}

void sum_of(OnnxCall& c) {
  Tensor y = c.x(0);
  for (size_t i = 1; i < c.in.size(); ++i) y = std::move(y) + c.x(i);
  c.set_like(0, y);
}
void mean_of(OnnxCall& c) {
  Tensor y = c.x(0);
  for (size_t i = 1; i < c.in.size(); ++i) y = std::move(y) + c.x(i);
  c.set_like(0, y / static_cast<double>(c.in.size()));
}

void clip(OnnxCall& c) {
  Tensor y = c.x(0);
  // Attributes before opset 11, then inputs.
  if (c.attribute("min")) y = clamp_min(y, c.attr_float("min", 0));
  if (c.attribute("max")) y = clamp_max(y, c.attr_float("max", 0));
  if (c.has(1)) y = maximum(y, c.x(1));
  if (c.has(2)) y = minimum(y, c.x(2));
  c.set_like(0, y);
}

void bit_shift(OnnxCall& c) {
  const Tensor a = c.x(0), b = c.x(1);
  const bool left = c.attr_choice("direction", "", {"LEFT", "RIGHT"}) == "LEFT";
  const OnnxTypeInfo& type = info_of(c.type(0));
  const Tensor beyond = logical_or(b < 0, b >= type.bits);
  Tensor y;
  if (left)
    y = bitwise_left_shift(a, b);
  else if (type.is_signed)  // what remains of a long shift is the sign
    return c.set_like(0, bitwise_right_shift(a, where(beyond, type.bits - 1, b)));
  else if (c.type(0) != OnnxType::u64)
    y = bitwise_right_shift(a, b);
  else  // first without the sign, then the others
    y = where(b == 0, a,
              bitwise_right_shift(bitwise_and(bitwise_right_shift(a, 1), ~kIntSignBit),
                                  maximum(b - 1, 0)));
  c.set_like(0, where(beyond, 0, y));
}

void equal(OnnxCall& c) {
  if (!c.value(0).is_strings()) return run_direct(c, op::eq);
  const OnnxStrings &a = c.value(0).strings(), &b = c.value(1).strings();
  // Strings are replaced by their indices in one list, so that numeric broadcasting applies.
  std::map<std::string, int64_t> numbers;
  auto coded = [&](const OnnxStrings& s) {
    std::vector<int64_t> v;
    for (const std::string& t : s.values)
      v.push_back(numbers.emplace(t, static_cast<int64_t>(numbers.size())).first->second);
    return tensor(v, Shape(s.shape));
  };
  const Tensor x = coded(a), y = coded(b);
  c.set(0, eq(x, y));
}

void is_inf(OnnxCall& c) {
  const bool up = c.attr("detect_positive", 1), down = c.attr("detect_negative", 1);
  const Tensor x = c.x(0);
  if (up && down)
    c.set(0, isinf(x));
  else
    c.set(0, up ? isposinf(x) : down ? isneginf(x) : logical_and(isinf(x), 0));
}

void determinant(OnnxCall& c) { c.set(0, linalg::det(c.x(0))); }
void inverse_of(OnnxCall& c) { c.set(0, linalg::inv(c.x(0))); }

void distances(OnnxCall& c) {
  const bool squared =
      c.attr_choice("metric", "sqeuclidean", {"sqeuclidean", "euclidean"}) == "sqeuclidean";
  const Tensor y = cdist(c.x(0), c.x(1));
  c.set(0, squared ? square(y) : y);
}

template <bool product>
void running(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = normalize_dim(c.int_at(1), x.dim());
  const bool reverse = c.attr("reverse", 0), exclusive = c.attr("exclusive", 0);
  Tensor y = reverse ? flip(x, {d}) : x;
  if (exclusive) {  // shifted by one place; the first is the neutral element
    Shape first = y.shape();
    first[d] = 1;
    const Tensor neutral = full(first, product ? 1 : 0, y.dtype());
    y = cat({neutral, y.narrow(d, 0, y.size(d) - 1)}, d);
  }
  y = product ? cumprod(y, d) : cumsum(y, d);
  if (reverse) y = flip(y, {d});
  c.set_like(0, y);
}

}  // namespace

std::span<const OnnxRow> onnx_math_rows() {
  constexpr OnnxSignature kOld{2, 1, "axis broadcast"};
  static constexpr OnnxRow kRows[] = {
      {"", "Add", 1, 6, old_binary, kOld},
      {"", "Sub", 1, 6, old_binary, kOld},
      {"", "Mul", 1, 6, old_binary, kOld},
      {"", "Div", 1, 6, old_binary, kOld},
      {"", "And", 1, 6, old_binary, kOld},
      {"", "Or", 1, 6, old_binary, kOld},
      {"", "Xor", 1, 6, old_binary, kOld},
      {"", "Equal", 1, 6, old_binary, kOld},
      {"", "Less", 1, 6, old_binary, kOld},
      {"", "Greater", 1, 6, old_binary, kOld},
      {"", "Pow", 1, 6, old_binary, kOld},
      {"", "Div", 7, 0, divide, {2, 1, ""}},
      {"", "Mod", 10, 0, modulo, {2, 1, "fmod"}},
      {"", "Pow", 7, 0, power, {2, 1, ""}},
      {"", "Max", 1, 0, fold<&maximum>, {kOnnxAny, 1, ""}},
      {"", "Min", 1, 0, fold<&minimum>, {kOnnxAny, 1, ""}},
      {"", "Sum", 1, 0, sum_of, {kOnnxAny, 1, ""}},
      {"", "Mean", 1, 0, mean_of, {kOnnxAny, 1, ""}},
      settings_from(1, {"", "Clip", 1, 0, clip, {3, 1, "max min"}, &op::clamp, export_clamp}),
      {"", "BitShift", 11, 0, bit_shift, {2, 1, "direction"}},
      {"", "Equal", 7, 0, equal, {2, 1, ""}},
      {"", "IsInf", 10, 0, is_inf, {1, 1, "detect_negative detect_positive"}},
      {"", "Det", 11, 0, determinant, {1, 1, ""}, &op::det, export_det},
      {"",
       "CumSum",
       11,
       0,
       running<false>,
       {2, 1, "exclusive reverse"},
       &op::cumsum,
       export_cumsum},
      {"", "CumProd", 26, 0, running<true>, {2, 1, "exclusive reverse"}},
      {kOnnxMicrosoft, "Inverse", 1, 0, inverse_of, {1, 1, ""}},
      {kOnnxMicrosoft, "CDist", 1, 0, distances, {2, 1, "metric"}},
      exported(op::clamp_min, export_clamp_min),
      exported(op::clamp_max, export_clamp_max),
  };
  return kRows;
}

}  // namespace tandem::onnx
