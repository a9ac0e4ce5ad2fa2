// SPDX-License-Identifier: Apache-2.0
// The steps of a model that edge.cpp writes down, with their places in the arena.
#pragma once

#include "tandem/compile/lowering/lower.h"
#include "tandem/edge/edge.h"

namespace tandem::edge {

/// Trace, passes, plan. Throws what the model throws, and Unsupported where it keeps state.
compiler::Lowered lower_for_text(EdgeForward forward, std::span<const EdgePort> inputs);

/// Between quantize_linear and dequantize_linear: integers (integers.cpp).
void compute_on_codes(compiler::Program& p);

}  // namespace tandem::edge
