// SPDX-License-Identifier: Apache-2.0
// Which steps of a plan 32-bit integer registers can hold. Integers compute in 64 bits, of which
// vectors hold half as many, and which AVX2 cannot convert from and to floats at all; and which
// bounds are already known. Called by emit_c.cpp; the interpreter keeps to 64 bits.
#pragma once

#include <vector>

#include "tandem/codegen/tile_plan.h"

namespace tandem::codegen {

/// What the text of a step may take for granted.
struct StepNote {
  /// It may compute in 32 bits. With an integer result: every value fits, or later steps read its
  /// low 32 bits only, or it is a float, saturated to 32 bits, that they bound. Otherwise: its
  /// integer operands fit. Results are those of 64 bits in either case.
  bool narrow = false;
  bool inside = false;  ///< of a conversion: the f32 is NaN or lies within 32 bits
  bool number = false;  ///< of an f32 max or min: the second operand is no NaN
  bool same = false;    ///< the integer result is the first operand
};

/// For each of plan.steps.
std::vector<StepNote> narrow_integers(const TilePlan& plan);

}  // namespace tandem::codegen
