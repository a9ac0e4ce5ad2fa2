// SPDX-License-Identifier: Apache-2.0
// Symbolic derivatives of pointwise rows. The derivative of a row for one input is itself a row,
// made once, kept forever and differentiable in turn; the gradient engine calls pointwise_vjp.
#pragma once

#include "tandem/graph/op_def.h"
#include "tandem/graph/vjp.h"

namespace tandem {

struct DerivedRow {
  enum class Kind : uint8_t {
    zero,      ///< no gradient reaches this input
    identity,  ///< the incoming gradient itself
    row,       ///< apply `row`
    refused,   ///< there is none (zeta's exponent): requesting it throws
  } kind = Kind::zero;
  /// Inputs: g, then the used inputs of the op in order, then its output if used. Its value is g *
  /// dy/dx, in the promoted dtype and the broadcast shape.
  const OpDef* row = nullptr;
  uint32_t uses_in = 0, uses_out = 0;  ///< bits: inputs and outputs of the op that it reads
};

/// The derivative of a one-output pointwise row for input `input`. Throws Unsupported for a row
/// with several outputs.
TD_API const DerivedRow& derived_row(const OpDef& op, int input);

/// What the derivatives for the inputs in `wanted` read.
TD_API uint32_t pointwise_saves_in(const OpDef& op, uint32_t wanted = ~0u);
TD_API uint32_t pointwise_saves_out(const OpDef& op, uint32_t wanted = ~0u);

/// `vjp` of every pointwise row without its own: applies the derived rows, sums to the shape of the
/// input and casts to its dtype where they differ.
TD_API void pointwise_vjp(VjpCall& call);

}  // namespace tandem
