// SPDX-License-Identifier: Apache-2.0
// The element-wise ops with PyTorch's names: functions in tandem, rows in tandem::op, both out of
// pointwise.def. Operands broadcast; dtypes promote as in PyTorch; every function throws Shape when
// shapes do not broadcast and DType for a dtype that it does not take.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "tandem/graph/apply.h"

namespace tandem {

// ---- y = f(x), y = f(x, numbers), y = f(a, b); what each does stands in pointwise.def
#define PW1(name, ...) TD_API Tensor name(Tensor x, Where where = Where::here());
#define PW1G PW1
#define PW1N(name, types, n, value, ...) \
  TD_API Tensor name(Tensor x, Operand n = value, Where where = Where::here());
#define PW1NG PW1N
#define PW1NNG(name, types, n, n_value, m, m_value, ...)                 \
  TD_API Tensor name(Tensor x, Operand n = n_value, Operand m = m_value, \
                     Where where = Where::here());
#define PW2(name, ...) TD_API Tensor name(Operand a, Operand b, Where where = Where::here());
#define PW2G PW2
#define ROW(...)
#define ROWG(...)
#include "tandem/ops/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG

// ---- functions that choose a row or its numbers
/// a + alpha * b.
TD_API Tensor add(Operand a, Operand b, Scalar alpha, Where where = Where::here());
/// a - alpha * b.
TD_API Tensor sub(Operand a, Operand b, Scalar alpha, Where where = Where::here());
/// a / b, rounded "floor" or "trunc"; throws Value for another mode.
TD_API Tensor div(Operand a, Operand b, std::string_view rounding_mode,
                  Where where = Where::here());
inline Tensor true_divide(Operand a, Operand b, Where where = Where::here()) {
  return div(std::move(a), std::move(b), where);
}
/// base to the exponent; integers to a negative number throw Value.
TD_API Tensor pow(Operand base, Operand exponent, Where where = Where::here());
/// Rounded to `decimals` digits after the point (before it if negative).
TD_API Tensor round(Tensor x, int64_t decimals, Where where = Where::here());
/// `a` where the condition holds, else `b`. The side that is not chosen has no gradient, not NaN.
TD_API Tensor where(Operand condition, Operand a, Operand b, Where where = Where::here());
/// x cut to min..max (numbers or tensors); max wins where they cross.
TD_API Tensor clamp(Tensor x, Operand min, Operand max, Where where = Where::here());
TD_API Tensor clamp_min(Tensor x, Operand min, Where where = Where::here());
TD_API Tensor clamp_max(Tensor x, Operand max, Where where = Where::here());
/// nullptr for no bound. Templates: else a literal 0 would mean nullptr and not the number.
template <std::same_as<std::nullptr_t> None>
Tensor clamp(Tensor x, None, Operand max, Where where = Where::here()) {
  return clamp_max(std::move(x), std::move(max), where);
}
template <std::same_as<std::nullptr_t> None>
Tensor clamp(Tensor x, Operand min, None, Where where = Where::here()) {
  return clamp_min(std::move(x), std::move(min), where);
}
/// log(x / (1 - x)); with eps > 0 x is cut to eps..1-eps first.
TD_API Tensor logit(Tensor x, double eps = -1, Where where = Where::here());
/// n-th derivative of digamma; throws Value for n < 0.
TD_API Tensor polygamma(int64_t n, Tensor x, Where where = Where::here());
/// log of the multivariate gamma function of dimension p >= 1: p (p - 1) / 4 log(pi) plus the sum
/// of lgamma(x - j / 2) over j < p; x is meant to be above (p - 1) / 2.
TD_API Tensor mvlgamma(Tensor x, int64_t p, Where where = Where::here());
inline Tensor multigammaln(Tensor x, int64_t p, Where where = Where::here()) {
  return mvlgamma(std::move(x), p, where);
}
/// lgamma(a) + lgamma(b) - lgamma(a + b).
TD_API Tensor betaln(const Tensor& a, const Tensor& b, Where where = Where::here());
/// gammainc and gammaincc by their other names.
inline Tensor igamma(Operand a, Operand x, Where where = Where::here()) {
  return gammainc(std::move(a), std::move(x), where);
}
inline Tensor igammac(Operand a, Operand x, Where where = Where::here()) {
  return gammaincc(std::move(a), std::move(x), where);
}
/// NaN, +infinity, -infinity replaced; the latter by the largest numbers of the dtype by default.
TD_API Tensor nan_to_num(Tensor x, double nan = 0, Where where = Where::here());
TD_API Tensor nan_to_num(Tensor x, double nan, double posinf, double neginf,
                         Where where = Where::here());
/// x times the normal distribution function; "tanh": by the tanh form.
TD_API Tensor gelu(Tensor x, std::string_view approximate = "none", Where where = Where::here());
/// x above the threshold, else value.
TD_API Tensor threshold(Tensor x, Operand threshold, Operand value, Where where = Where::here());
/// x where positive, else weight * x; weight has one element or x.size(1).
TD_API Tensor prelu(Tensor x, Tensor weight, Where where = Where::here());
/// a * sigmoid(b) of the two halves a, b of x along `dim`.
TD_API Tensor glu(Tensor x, int64_t dim = -1, Where where = Where::here());
/// start + weight * (end - start).
TD_API Tensor lerp(Operand start, Operand end, Operand weight, Where where = Where::here());
/// x + value * a * b.
TD_API Tensor addcmul(Tensor x, Operand a, Operand b, Operand value = 1,
                      Where where = Where::here());
/// x + value * a / b.
TD_API Tensor addcdiv(Tensor x, Operand a, Operand b, Operand value = 1,
                      Where where = Where::here());
/// |a - b| <= atol + rtol * |b|, element by element.
TD_API Tensor isclose(Operand a, Operand b, double rtol = 1e-5, double atol = 1e-8,
                      Where where = Where::here());

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
#include "tandem/ops/pointwise.def"
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
