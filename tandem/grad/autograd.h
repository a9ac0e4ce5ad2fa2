// SPDX-License-Identifier: Apache-2.0
// Gradients of values that were already computed: what Tensor::backward() is made of.
#pragma once

#include "tandem/graph/context.h"

namespace tandem {

struct GradOptions {
  std::vector<Tensor> grad_outputs = {};  ///< per output; may be left out for one-element outputs
  bool retain_graph = false;              ///< keep what was saved, for another pass
  bool create_graph = false;              ///< record the gradients too (higher orders)
  bool allow_unused = false;              ///< an input that plays no part gives an undefined tensor
};

/// Gradients of `outputs` with respect to `inputs`, as torch.autograd.grad; no slot is touched.
/// Throws Value if an input plays no part (unless allow_unused) or does not require a gradient.
TD_API std::vector<Tensor> grad(const std::vector<Tensor>& outputs,
                                const std::vector<Tensor>& inputs, GradOptions options = {},
                                Where where = Where::here());
TD_API Tensor grad(const Tensor& output, const Tensor& input, GradOptions options = {},
                   Where where = Where::here());

}  // namespace tandem
