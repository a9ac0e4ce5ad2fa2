// SPDX-License-Identifier: Apache-2.0
// Elementwise functions whose results are exact numbers: divisors and multiples of integers, the
// parts of a floating number, its neighbour. PyTorch's names; operands broadcast and promote.
#pragma once

#include <utility>

#include "tandem/graph/apply.h"

namespace tandem {

/// Greatest common divisor (not negative; gcd(0, 0) = 0) and least common multiple of integers.
/// Throws DType unless both are integers.
TD_API Tensor gcd(Operand a, Operand b, SourceLocation loc = SourceLocation::here());
TD_API Tensor lcm(Operand a, Operand b, SourceLocation loc = SourceLocation::here());
/// The floating number next to a in the direction of b. Both of one floating dtype after promotion.
TD_API Tensor nextafter(Operand a, Operand b, SourceLocation loc = SourceLocation::here());

/// x = mantissa * 2^exponent with |mantissa| in [0.5, 1), exponent in int32; 0, infinities and NaN
/// have exponent 0.
TD_API FrexpResult frexp(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// x * 2^other.
TD_API Tensor ldexp(Operand x, Operand other, SourceLocation loc = SourceLocation::here());
/// base to the exponent, computed in float64.
TD_API Tensor float_power(Operand base, Operand exponent,
                          SourceLocation loc = SourceLocation::here());

/// Of real numbers: pi where x is negative, else 0 (NaN stays); x itself; true.
TD_API Tensor angle(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor real(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor isreal(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// x itself; throws DType for bool, as PyTorch does.
TD_API Tensor positive(Tensor x, SourceLocation loc = SourceLocation::here());

// ---- rows
namespace op {
/// Both: a, b of one shape and dtype -> y.
extern TD_API const OpDef gcd, nextafter;
}  // namespace op
/// The rows of this file.
TD_API std::span<const OpDef* const> exact_rows();

}  // namespace tandem
