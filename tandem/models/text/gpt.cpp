// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/text/gpt.h"

#include <cmath>

#include "tandem/base/divisors.h"
#include "tandem/graph/context.h"
#include "tandem/nn/heads_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

GPT::Block::Block(const GPTOptions& o)
    : ln_1({o.width}, {.bias = o.bias}),
      ln_2({o.width}, {.bias = o.bias}),
      c_attn(o.width, 3 * o.width, {.bias = o.bias}),
      c_proj(o.width, o.width, {.bias = o.bias}),
      c_fc(o.width, 4 * o.width, {.bias = o.bias}),
      mlp_proj(4 * o.width, o.width, {.bias = o.bias}),
      drop(o.dropout),
      heads(o.heads),
      dropout(o.dropout) {
  TD_REGISTER(ln_1, c_attn, c_proj, ln_2, c_fc, mlp_proj, drop);
  static const nn::detail::HeadsKind kind([](const nn::Module& m) {
    const int64_t all = static_cast<const Block&>(m).heads;
    return nn::detail::HeadCounts{all, all};
  });
  state().kind = &kind;
}

Tensor GPT::Block::forward(Tensor x) {
  const int64_t size = x.size(2) / heads;
  const Tensor packed = c_attn(ln_1(x));  // of all heads, or of those that this process holds
  const Dim n = packed.shape(0), t = packed.shape(1);
  const int64_t width = packed.size(2) / 3;
  Tensor qkv = permute(reshape(packed, {n, t, 3, width / size, size}), {2, 0, 3, 1, 4});
  Tensor seen = scaled_dot_product_attention(select(qkv, 0, 0), select(qkv, 0, 1),
                                             select(qkv, 0, 2), {}, is_training() ? dropout : 0.0,
                                             /*is_causal=*/true);
  x = x + drop(c_proj(reshape(transpose(seen, 1, 2), {n, t, width})));
  return x + drop(mlp_proj(gelu(c_fc(ln_2(x)))));
}

GPT::GPT(GPTOptions o)
    : wte(o.vocabulary, o.width),
      wpe(o.context, o.width),
      drop(o.dropout),
      ln_f({o.width}, {.bias = o.bias}),
      o_(o) {
  TD_CHECK(o.heads > 0 && o.width % o.heads == 0, Value,
           "GPT: a width of {} does not divide into {} heads\n{}", o.width, o.heads,
           divisor_hint("heads", o.heads, o.width));
  for (int64_t i = 0; i < o.layers; ++i) h.emplace_back(o);
  TD_REGISTER(wte, wpe, drop, h, ln_f);
  // N(0, 0.02); layers that add to the residual stream start smaller, by their number (GPT-2).
  NoGradGuard no_grad;
  for (auto& [name, p] : named_parameters()) {
    if (p.dim() < 2) {
      if (name.ends_with("bias")) p.assign_(zeros(p.shape()));
      continue;
    }
    const double std = name.ends_with("_proj.weight")
                           ? 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))
                           : 0.02;
    p.assign_(randn(p.shape()) * std);
  }
}

Tensor GPT::forward(Tensor ids) {
  TD_CHECK(ids.dim() == 2 && (ids.shape(1).is_symbolic() || ids.size(1) <= o_.context), Shape,
           "GPT expects ids [n, t] with t <= {}, got {}", o_.context, ids.shape().to_string());
  Tensor x = drop(wte(ids) + wpe(arange_dim(ids.shape(1))));
  for (Block& block : h) x = block(x);
  return linear(ln_f(x), wte.weight);
}

}  // namespace tandem::models
