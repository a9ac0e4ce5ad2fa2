// SPDX-License-Identifier: Apache-2.0
// The backward walk: from outputs with incoming gradients down the nodes, deepest first.
#pragma once

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"

namespace tandem {

struct BackwardRequest {
  std::span<const Tensor> roots;
  std::span<const Tensor> root_grads;  ///< defined, one per root
  std::span<const Tensor> targets;     ///< whose gradients are returned
  bool accumulate = false;             ///< store into the leaves' gradient slots
  bool retain_graph = false;
  bool create_graph = false;
  SourceLocation loc;
  std::span<GradSlot* const> only = {};  ///< with `accumulate`: into these slots alone; empty: all
};

/// The gradients of `targets` (undefined where none flows). Throws Value on a released tape and
/// Unsupported for an op without a derivative.
std::vector<Tensor> run_backward(const BackwardRequest& request);

/// Run a traced function on a batch: inputs[i] has the batch dimension first where batched[i].
/// Every output has it.
std::vector<Tensor> run_batched(const Graph& g, Dim size, std::span<const Tensor> inputs,
                                const std::vector<char>& batched);

/// `t` as a new variable, connected to t where the derivative is differentiated again.
Tensor variable(const Tensor& t, bool again);
/// Gradients of `targets` from `values` with incoming `grads` (undefined: none).
std::vector<Tensor> pull(std::span<const Tensor> values, std::span<const Tensor> grads,
                         std::span<const Tensor> targets, bool again, SourceLocation loc);

/// Whether the roots depend on leaves other than the targets.
bool depends_on_others(std::span<const Tensor> roots, std::span<const Tensor> targets);

/// Rethrow the error being handled, adding the function's name and the user's line if it has
/// none.
[[noreturn]] inline void rethrow_at(const Error& e, const char* name, SourceLocation loc) {
  if (!e.op().empty()) throw;
  throw with_place(e, name, loc);
}

/// The incoming gradient of a root: `given`, validated, or one for a single element.
Tensor root_gradient(const Tensor& y, const Tensor& given, SourceLocation loc);

}  // namespace tandem
