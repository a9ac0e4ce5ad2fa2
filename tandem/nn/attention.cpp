// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/attention.h"

#include "tandem/nn/init.h"
#include "tandem/ops/attention.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/view.h"

namespace tandem::nn {
namespace {

// [n, l, e] -> [n, heads, l, e / heads]
Tensor split_heads(Tensor x, int64_t heads) {
  Shape s{x.shape(0), x.shape(1), heads, floordiv(x.shape(2), heads)};
  return transpose(reshape(std::move(x), s), 1, 2);
}

}  // namespace

MultiheadAttention::MultiheadAttention(Dim e, Dim heads, MultiheadAttentionOptions o)
    : out_proj(e, e, {.bias = o.bias, .dtype = o.dtype}),
      embed_dim(e.value()),
      num_heads(heads.value()),
      options(o) {
  TD_CHECK(num_heads > 0 && embed_dim % num_heads == 0, Value,
           "embed_dim = {} must be a multiple of num_heads = {}", embed_dim, num_heads);
  in_proj_weight = Param(init::xavier_uniform({3 * embed_dim, e}, 1, o.dtype));
  if (o.bias) {
    in_proj_bias = Param(zeros({3 * embed_dim}, o.dtype));
    out_proj.bias = Param(zeros({e}, o.dtype));
  }
  TD_REGISTER(in_proj_weight, in_proj_bias, out_proj);
}

Tensor MultiheadAttention::forward(Tensor q, Tensor k, Tensor v, AttentionArguments a) {
  TD_CHECK(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, Shape,
           "query, key and value want 3 dimensions, got {}, {} and {}", q.shape().to_string(),
           k.shape().to_string(), v.shape().to_string());
  if (!options.batch_first) {
    q = transpose(q, 0, 1);
    k = transpose(k, 0, 1);
    v = transpose(v, 0, 1);
  }
  Tensor w = in_proj_weight, b = in_proj_bias.defined() ? in_proj_bias.value() : Tensor();
  auto project = [&](const Tensor& x, int64_t part) {
    Tensor wp = narrow(w, 0, part * embed_dim, embed_dim);
    Tensor bp = b.defined() ? narrow(b, 0, part * embed_dim, embed_dim) : Tensor();
    return split_heads(linear(x, wp, bp), num_heads);
  };
  if (a.mask.defined() && a.mask.dtype() == DType::b8) a.mask = logical_not(a.mask);
  Tensor y = scaled_dot_product_attention(project(q, 0), project(k, 1), project(v, 2), a.mask,
                                          is_training() ? options.dropout : 0, a.is_causal);
  y = reshape(transpose(y, 1, 2), {q.shape(0), q.shape(1), embed_dim});
  y = out_proj(y);
  return options.batch_first ? y : transpose(y, 0, 1);
}

Tensor MultiheadAttention::operator()(Tensor q, Tensor k, Tensor v, AttentionArguments a,
                                      Where where) {
  return scoped(where, [&] { return forward(std::move(q), std::move(k), std::move(v), a); });
}

}  // namespace tandem::nn
