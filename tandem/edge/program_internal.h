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
/// Fused loops end where codes are made: codes stand in memory, not what they are computed from.
void keep_codes(compiler::Program& p);
/// Loops over sums of integer products go into these: Step::inside (sum_loops.cpp). The arena is
/// planned again, in multiples of `align`.
void fuse_sum_loops(compiler::Lowered& l, size_t align);
/// Which operand of step product + 1, which runs inside `product`, are the sums.
int operand_of_sums(const compiler::Lowered& l, size_t product);

}  // namespace tandem::edge
