// SPDX-License-Identifier: Apache-2.0
// MultiheadAttention like torch.nn.MultiheadAttention, plus grouped heads and a cache of keys and
// values for decoding.
#pragma once

#include "tandem/nn/linear.h"

namespace tandem::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;    ///< appends a learned key and value
  bool add_zero_attn = false;  ///< appends a zero key and value
  int64_t kdim = 0, vdim = 0;  ///< sizes of key and value; 0: embed_dim
  bool batch_first = false;
  int64_t num_kv_heads = 0;  ///< heads of key and value, shared by groups of queries; 0: num_heads
  DType dtype = DType::f32;
};

/// Keys and values of the steps so far, of fixed size, so that decoding steps can be traced.
class TD_API KVCache : public Module {
 public:
  /// For n sequences of up to max_length steps. Throws Value for sizes below 1.
  KVCache(int64_t n, int64_t kv_heads, int64_t max_length, int64_t head_size,
          DType dtype = DType::f32);
  /// Forget all steps.
  void reset();
  /// [n, kv_heads, max_length, head_size]
  Buffer k, v;
  Buffer length;  ///< steps so far, i64
  int64_t max_length;
};

struct AttentionArguments {
  /// attn_mask [l, s] or [n * heads, l, s]: bool (true: hidden, as in PyTorch) or added to scores
  Tensor mask = {};
  bool is_causal = false;        ///< each position attends to itself and to earlier ones
  Tensor key_padding_mask = {};  ///< [n, s], bool (true: hidden) or added
  bool average_attn_weights = true;
  KVCache* cache = nullptr;  ///< takes key and value; attention is then causal over it
};
/// y has query's layout; weights [n, l, s], or [n, heads, l, s] unless averaged.
struct AttentionOutput {
  Tensor y, weights;
};

/// query [l, n, e] (or [n, l, e] with batch_first, or [l, e]), key and value [s, n, kdim], [s, n,
/// vdim]. Parameters in_proj_weight [3e, e] (or q_proj_weight, k_proj_weight, v_proj_weight where
/// sizes or head counts differ), in_proj_bias, bias_k, bias_v, out_proj.weight, out_proj.bias.
class TD_API MultiheadAttention : public Module {
 public:
  MultiheadAttention(Dim embed_dim, Dim num_heads, MultiheadAttentionOptions options = {});
  Tensor forward(Tensor query, Tensor key, Tensor value, AttentionArguments arguments = {});
  Tensor operator()(Tensor query, Tensor key, Tensor value, AttentionArguments arguments = {},
                    SourceLocation loc = SourceLocation::here());
  /// Also returns the attention weights (PyTorch's need_weights = true), which takes the memory of
  /// the whole score matrix.
  AttentionOutput with_weights(Tensor query, Tensor key, Tensor value,
                               AttentionArguments arguments = {},
                               SourceLocation loc = SourceLocation::here());
  Param in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj;
  int64_t embed_dim, num_heads, num_kv_heads, head_dim;
  MultiheadAttentionOptions options;

 private:
  AttentionOutput run(Tensor q, Tensor k, Tensor v, const AttentionArguments& a, bool weights);
  Tensor project(const Tensor& x, int part) const;
  void extend(Tensor& k, Tensor& v, Tensor& mask) const;
  Tensor through_cache(KVCache& c, Tensor& k, Tensor& v, Tensor mask, Dim length,
                       DType dtype) const;
  AttentionOutput explicit_weights(Tensor q, Tensor k, Tensor v, const Tensor& mask, double drop,
                                   bool average) const;
};

namespace detail {
/// `m` as a MultiheadAttention; nullptr if it is not one.
TD_API MultiheadAttention* as_attention(Module& m);
}  // namespace detail

}  // namespace tandem::nn
