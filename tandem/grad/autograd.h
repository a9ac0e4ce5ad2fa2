// SPDX-License-Identifier: Apache-2.0
// Gradients of values that were already computed: what Tensor::backward() is built on.
#pragma once

#include "tandem/graph/context.h"

namespace tandem {

struct GradOptions {
  std::vector<Tensor> grad_outputs = {};  ///< per output; may be omitted for one-element outputs
  bool retain_graph = false;              ///< keep the saved values for another pass
  bool create_graph = false;              ///< record the gradients too (higher orders)
  bool allow_unused = false;              ///< an unused input gives an undefined tensor
};

/// Gradients of `outputs` with respect to `inputs`, like torch.autograd.grad; no slot is changed.
/// Throws Value if an input is unused (unless allow_unused) or does not require a gradient.
TD_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                const std::vector<Tensor>& inputs, GradOptions options = {},
                                SourceLocation loc = SourceLocation::here());
TD_API Tensor grad(const Tensor& output, const Tensor& input, GradOptions options = {},
                   SourceLocation loc = SourceLocation::here());

}  // namespace tandem
