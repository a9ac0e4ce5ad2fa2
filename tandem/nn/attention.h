// SPDX-License-Identifier: Apache-2.0
// MultiheadAttention as torch.nn.MultiheadAttention: one projection for q, k, v when their sizes
// are equal.
#pragma once

#include "tandem/nn/linear.h"

namespace tandem::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;
  bool bias = true;
  bool batch_first = false;
  DType dtype = DType::f32;
};

struct AttentionArguments {
  Tensor mask = {};        ///< bool (true: not seen, as PyTorch's attn_mask) or added to the scores
  bool is_causal = false;  ///< each position sees itself and what is before
};

/// query [l, n, e] (or [n, l, e] with batch_first), key and value [s, n, e]. Parameters
/// in_proj_weight [3e, e], in_proj_bias [3e], out_proj.weight, out_proj.bias.
class TD_API MultiheadAttention : public Module {
 public:
  MultiheadAttention(Dim embed_dim, Dim num_heads, MultiheadAttentionOptions options = {});
  Tensor forward(Tensor query, Tensor key, Tensor value, AttentionArguments arguments = {});
  Tensor operator()(Tensor query, Tensor key, Tensor value, AttentionArguments arguments = {},
                    Where where = Where::here());
  Param in_proj_weight, in_proj_bias;
  Linear out_proj;
  int64_t embed_dim, num_heads;
  MultiheadAttentionOptions options;
};

}  // namespace tandem::nn
