// SPDX-License-Identifier: Apache-2.0
// The derivative of one call of a compiled function whose backward() runs in eager code: a node on
// the tape that holds what the forward program saved, and for a second derivative what the call
// saw.
#pragma once

#include "tandem/compile/run/specialisation.h"
#include "tandem/graph/rng.h"

namespace tandem::detail {

/// What a call takes from its specialisation; held so that the cache may let go of it.
struct DifferentiableCall {
  Ref<Executable> forward, backward;
  Ref<Graph> graph;
  std::vector<compiler::Saved> saved;
  std::vector<GradTarget> targets;
  std::vector<size_t> grad_outputs;
  size_t n_out = 0;
};

/// Runs the forward program and records the derivative after the outputs that have one.
std::vector<Tensor> run_differentiable(DifferentiableCall call, const std::vector<Tensor>& args,
                                       std::vector<Tensor> captures, SourceLocation loc);

}  // namespace tandem::detail
