// SPDX-License-Identifier: Apache-2.0
// Gradients of values that were already computed: what Tensor::backward() is built on.
#pragma once

#include "tandem/graph/cell.h"
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

/// loss.backward() into the gradients of `inputs` alone, like PyTorch's backward(inputs=...): what
/// other parameters hold stays. `loss` has one element. Throws Value for a loss that does not
/// require a gradient and for no inputs; an input that the loss does not depend on gets nothing.
TD_API void backward(const Tensor& loss, const std::vector<Param>& inputs,
                     bool retain_graph = false, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
