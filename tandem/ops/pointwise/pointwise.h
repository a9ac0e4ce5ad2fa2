// SPDX-License-Identifier: Apache-2.0
// The elementwise ops with PyTorch's names: functions in tandem, rows in tandem::op, both generated
// from pointwise.def. Operands broadcast; dtypes promote as in PyTorch; every function throws Shape
// when shapes do not broadcast and DType for an unsupported dtype.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "tandem/graph/apply.h"

namespace tandem {

// ---- y = f(x), y = f(x, numbers), y = f(a, b); documented in pointwise.def
#define PW1(name, ...) TD_API Tensor name(Tensor x, SourceLocation loc = SourceLocation::here());
#define PW1G PW1
#define PW1N(name, types, n, value, ...) \
  TD_API Tensor name(Tensor x, Operand n = value, SourceLocation loc = SourceLocation::here());
#define PW1NG PW1N
#define PW1NNG(name, types, n, n_value, m, m_value, ...)                 \
  TD_API Tensor name(Tensor x, Operand n = n_value, Operand m = m_value, \
                     SourceLocation loc = SourceLocation::here());
#define PW2(name, ...) \
  TD_API Tensor name(Operand a, Operand b, SourceLocation loc = SourceLocation::here());
#define PW2G PW2
#define ROW(...)
#define ROWG(...)
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG

// ---- functions that select a row or its numbers
// a + alpha * b.
TD_API Tensor add(Operand a, Operand b, Scalar alpha, SourceLocation loc = SourceLocation::here());
/// a - alpha * b.
TD_API Tensor sub(Operand a, Operand b, Scalar alpha, SourceLocation loc = SourceLocation::here());
/// a / b, rounded "floor" or "trunc"; throws Value for another mode.
TD_API Tensor div(Operand a, Operand b, std::string_view rounding_mode,
                  SourceLocation loc = SourceLocation::here());
/// base to the exponent; integers to a negative number throw Value.
TD_API Tensor pow(Operand base, Operand exponent, SourceLocation loc = SourceLocation::here());
/// Rounded to `decimals` digits after the point (before it if negative).
TD_API Tensor round(Tensor x, int64_t decimals, SourceLocation loc = SourceLocation::here());
/// `a` where the condition holds, else `b`. The unselected side gets no gradient, rather than NaN.
TD_API Tensor where(Operand condition, Operand a, Operand b,
                    SourceLocation loc = SourceLocation::here());
/// x clamped to min..max (numbers or tensors); max wins where they cross. The gradient is 0 where x
/// meets a number; where it meets a tensor, each gets half of it (docs/decisions/002).
TD_API Tensor clamp(Tensor x, Operand min, Operand max,
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor clamp_min(Tensor x, Operand min, SourceLocation loc = SourceLocation::here());
TD_API Tensor clamp_max(Tensor x, Operand max, SourceLocation loc = SourceLocation::here());
/// nullptr for no bound. Templates, because a literal 0 would otherwise mean nullptr.
template <std::same_as<std::nullptr_t> None>
Tensor clamp(Tensor x, None, Operand max, SourceLocation loc = SourceLocation::here()) {
  return clamp_max(std::move(x), std::move(max), loc);
}
template <std::same_as<std::nullptr_t> None>
Tensor clamp(Tensor x, Operand min, None, SourceLocation loc = SourceLocation::here()) {
  return clamp_min(std::move(x), std::move(min), loc);
}
/// log(x / (1 - x)); with eps > 0, x is first clamped to eps..1-eps.
TD_API Tensor logit(Tensor x, double eps = -1, SourceLocation loc = SourceLocation::here());
/// n-th derivative of digamma; throws Value for n < 0.
TD_API Tensor polygamma(int64_t n, Tensor x, SourceLocation loc = SourceLocation::here());
/// log of the multivariate gamma function of dimension p >= 1: p (p - 1) / 4 log(pi) plus the sum
/// of lgamma(x - j / 2) over j < p; x is meant to be above (p - 1) / 2.
TD_API Tensor mvlgamma(Tensor x, int64_t p, SourceLocation loc = SourceLocation::here());
/// lgamma(a) + lgamma(b) - lgamma(a + b).
TD_API Tensor betaln(const Tensor& a, const Tensor& b, SourceLocation loc = SourceLocation::here());
/// NaN, +infinity, -infinity replaced; the infinities by default with the dtype's extreme numbers.
TD_API Tensor nan_to_num(Tensor x, double nan = 0, SourceLocation loc = SourceLocation::here());
TD_API Tensor nan_to_num(Tensor x, double nan, double posinf, double neginf,
                         SourceLocation loc = SourceLocation::here());
/// x times the normal distribution function; "tanh": its tanh approximation.
TD_API Tensor gelu(Tensor x, std::string_view approximate = "none",
                   SourceLocation loc = SourceLocation::here());
/// x above the threshold, else value.
TD_API Tensor threshold(Tensor x, Operand threshold, Operand value,
                        SourceLocation loc = SourceLocation::here());
/// x where positive, else weight * x; weight has one element or x.size(1).
TD_API Tensor prelu(Tensor x, Tensor weight, SourceLocation loc = SourceLocation::here());
/// a * sigmoid(b) of the two halves a, b of x along `dim`.
TD_API Tensor glu(Tensor x, int64_t dim = -1, SourceLocation loc = SourceLocation::here());
/// start + weight * (end - start).
TD_API Tensor lerp(Operand start, Operand end, Operand weight,
                   SourceLocation loc = SourceLocation::here());
/// x + value * a * b.
TD_API Tensor addcmul(Tensor x, Operand a, Operand b, Operand value = 1,
                      SourceLocation loc = SourceLocation::here());
/// x + value * a / b.
TD_API Tensor addcdiv(Tensor x, Operand a, Operand b, Operand value = 1,
                      SourceLocation loc = SourceLocation::here());
/// |a - b| <= atol + rtol * |b|, elementwise.
TD_API Tensor isclose(Operand a, Operand b, double rtol = 1e-5, double atol = 1e-8,
                      SourceLocation loc = SourceLocation::here());

// ---- rows
namespace op {
#define PW1(name, ...) extern TD_API const OpDef name;
#define PW1G PW1
#define PW1N PW1
#define PW1NG PW1
#define PW1NNG PW1
#define PW2 PW1
#define PW2G PW1
#define ROW PW1
#define ROWG PW1
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG
}  // namespace op

/// All rows of this file, op::cast included.
TD_API std::span<const OpDef* const> pointwise_rows();

}  // namespace tandem
