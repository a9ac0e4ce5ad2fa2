// SPDX-License-Identifier: Apache-2.0
// The layers of the pretrained families. Masks and positions are made once per call by their
// models.
#include "tandem/models/pretrained/layers_internal.h"

#include <cmath>

#include "tandem/graph/trace.h"
#include "tandem/nn/heads_internal.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/nn/paged_attention.h"
#include "tandem/ops/ops.h"

namespace tandem::models::detail {
namespace {

const nn::LinearOptions kPlain{.bias = false};

int64_t kv_heads_of(const AttentionSpec& s) { return s.kv_heads ? s.kv_heads : s.heads; }
int64_t head_dim_of(const AttentionSpec& s) { return s.head_dim ? s.head_dim : s.width / s.heads; }
int64_t kv_width(const AttentionSpec& s) { return kv_heads_of(s) * head_dim_of(s); }
int64_t q_width(const AttentionSpec& s) { return s.heads * head_dim_of(s); }

constexpr char kFromOne = 0;  // its address is the kind of such norms

}  // namespace

Norm::Norm(int64_t size, const NormSpec& s)
    : weight(s.kind == NormKind::rms_from_one ? zeros({size}) : ones({size})), spec(s) {
  if (s.kind == NormKind::layer) bias = Param(zeros({size}));
  TD_REGISTER(weight, bias);
  if (s.kind == NormKind::rms_from_one) state().kind = &kFromOne;
}
bool counts_from_one(const nn::Module& m) { return m.state().kind == &kFromOne; }
Tensor Norm::forward(Tensor x) {
  const int64_t n = weight.size(0);
  if (spec.kind == NormKind::layer) return layer_norm(std::move(x), {n}, weight, bias, spec.eps);
  return rms_norm(std::move(x), {n},
                  spec.kind == NormKind::rms ? weight.value() : weight.value() + 1, spec.eps);
}

Tensor Turn::apply(const Tensor& x) const {
  const int64_t size = cos.size(3), half = size / 2;
  const DType own = x.dtype();  // angles are f32 whatever the weights' dtype
  const Tensor part = size == x.size(3) ? x : x.narrow(3, 0, size);
  const Tensor turned =
      (part * cos + cat({-part.narrow(3, half, half), part.narrow(3, 0, half)}, 3) * sin).to(own);
  return size == x.size(3) ? turned : cat({turned, x.narrow(3, size, x.size(3) - size)}, 3);
}

Tensor attend(const Tensor& q, Tensor k, Tensor v, const Tensor& mask, bool causal, double scale,
              double softcap) {
  const int64_t groups = q.size(1) / k.size(1);
  if (softcap == 0)
    return scaled_dot_product_attention(q, std::move(k), std::move(v), mask, 0,
                                        causal && !mask.defined(), scale, groups > 1);
  if (groups > 1) {
    k = repeat_interleave(k, groups, 1);
    v = repeat_interleave(v, groups, 1);
  }
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor scores = matmul(q * (scale / softcap), k.transpose(2, 3));
  scores = tanh(std::move(scores)) * softcap;
  const Tensor seen = mask.defined() || !causal ? mask : causal_mask(q.shape(2), Tensor());
  if (seen.defined())
    scores = seen.dtype() == DType::b8 ? where(seen, scores, -1e30F) : scores + seen;
  return matmul(softmax(std::move(scores), -1), v);
}

Attention::Attention(const AttentionSpec& s)
    : spec(s),
      q(s.width, q_width(s) + (s.packed ? 2 * kv_width(s) : 0), {.bias = s.q_bias}),
      o(q_width(s), s.width, {.bias = s.o_bias}) {
  const int64_t from = s.memory ? s.memory : s.width;
  if (!s.packed) {
    k.emplace(from, kv_width(s), nn::LinearOptions{.bias = s.k_bias});
    v.emplace(from, kv_width(s), nn::LinearOptions{.bias = s.v_bias});
  }
  if (s.norm) {
    q_norm.emplace(head_dim_of(s), *s.norm);
    k_norm.emplace(head_dim_of(s), *s.norm);
  }
  register_as(this, {s.q, s.k, s.v, s.o, s.q_norm, s.k_norm}, q, k, v, o, q_norm, k_norm);
}

Tensor Attention::forward(const Tensor& x, const Tensor& memory, const AttentionCall& c) {
  const Tensor asks = c.q_added.defined() ? x + c.q_added : x;
  Tensor qs, ks, vs;
  if (spec.packed) {
    const Tensor all = q(asks);
    qs = all.narrow(2, 0, q_width(spec));
    ks = all.narrow(2, q_width(spec), kv_width(spec));
    vs = all.narrow(2, q_width(spec) + kv_width(spec), kv_width(spec));
  } else {
    qs = q(asks);
  }
  // All heads, or those that this process holds.
  const int64_t size = q_width(spec) / spec.heads;
  qs = split_heads(qs, qs.size(2) / size);
  if (q_norm) qs = (*q_norm)(qs);
  if (c.turn) qs = c.turn->apply(qs);
  if (c.complete && c.paged)
    return o(
        merge_heads(paged_attention(qs, c.paged->layer->k, c.paged->layer->v, c.paged->step->table,
                                    c.seen, {c.paged->block, spec.scale, spec.softcap})));
  if (c.complete)
    return o(
        merge_heads(attend(qs, c.cache->k, c.cache->v, c.mask, false, spec.scale, spec.softcap)));
  if (!spec.packed) {
    ks = (*k)(c.k_added.defined() ? memory + c.k_added : memory);
    vs = (*v)(memory);
  }
  ks = split_heads(ks, ks.size(2) / size);
  vs = split_heads(vs, vs.size(2) / size);
  if (k_norm) ks = (*k_norm)(ks);
  if (c.turn) ks = c.turn->apply(ks);
  if (c.paged) return o(merge_heads(attend_paged(qs, ks, vs, *c.paged, spec.scale, spec.softcap)));
  if (c.cache) append_to_cache(ks, vs, *c.cache);
  return o(merge_heads(attend(qs, ks, vs, c.mask, c.causal, spec.scale, spec.softcap)));
}

void Attention::fill(nn::KVCache& cache, const Tensor& memory) {
  cache.k.assign_(split_heads((*k)(memory), kv_heads_of(spec)));
  cache.v.assign_(split_heads((*v)(memory), kv_heads_of(spec)));
  cache.length.assign_(full({}, memory.size(1), DType::i64));
}
void Attention::fill(const PagedCache::Layer& pool, const Tensor& memory, const Tensor& slots) {
  write_paged(pool, split_heads((*k)(memory), kv_heads_of(spec)),
              split_heads((*v)(memory), kv_heads_of(spec)), slots);
}

Mlp::Mlp(const MlpSpec& s)
    : spec(s),
      up(s.width, s.packed ? 2 * s.inner : s.inner, {.bias = s.bias}),
      down(s.inner, s.width, {.bias = s.bias}) {
  if (s.gated && !s.packed) gate.emplace(s.width, s.inner, nn::LinearOptions{.bias = s.bias});
  register_as(this, {s.up, s.down, s.gate}, up, down, gate);
}
Tensor Mlp::forward(Tensor x) {
  if (gate) return down(spec.act((*gate)(x)) * up(x));
  Tensor y = up(std::move(x));
  if (!spec.packed) return down(spec.act(std::move(y)));
  const int last = y.dim() - 1;
  return down(spec.act(y.narrow(last, 0, spec.inner)) * y.narrow(last, spec.inner, spec.inner));
}

Experts::Experts(const MlpSpec& s)
    : spec(s),
      gate(s.width, s.experts, kPlain),
      gate_up_proj(nn::init::normal({s.experts, 2 * s.inner, s.width}, 0, 0.02)),
      down_proj(nn::init::normal({s.experts, s.width, s.inner}, 0, 0.02)) {
  register_as(this, {s.gate, s.up, s.down}, gate, gate_up_proj, down_proj);
}
Tensor Experts::forward(Tensor x) {
  const Shape shape = x.shape();
  x = x.reshape({-1, spec.width});
  auto [scores, chosen] = topk(softmax(gate(x), 1), spec.chosen, 1);
  const Tensor weights = scores / scores.sum({1}, true);
  const auto run = [&](const Tensor& in, const Tensor& first, const Tensor& second) {
    const Tensor y = matmul(in, first.transpose(-2, -1));
    return matmul(spec.act(y.narrow(-1, 0, spec.inner)) * y.narrow(-1, spec.inner, spec.inner),
                  second.transpose(-2, -1));
  };
  const bool few = !x.shape(0).is_symbolic() && x.size(0) * spec.chosen < spec.experts;
  if (few) {  // reads the weights of the experts that were chosen alone
    const Tensor flat = chosen.flatten();
    const Tensor in = repeat_interleave(x, spec.chosen, 0).unsqueeze(1);
    const Tensor y =
        run(in, index_select(gate_up_proj, 0, flat), index_select(down_proj, 0, flat)).squeeze(1);
    return (y * weights.reshape({-1, 1}))
        .reshape({x.size(0), spec.chosen, spec.width})
        .sum({1})
        .reshape(shape);
  }
  const Tensor all = run(x.unsqueeze(0), gate_up_proj, down_proj);  // [experts, n, width]
  const Tensor share = scatter(zeros_like(gate(x)), 1, chosen, weights);
  return (all * share.transpose(0, 1).unsqueeze(2)).sum({0}).reshape(shape);
}

Block::Block(const BlockSpec& s)
    : spec(s), self(s.self), norm1(s.self.width, s.norm), norm2(s.self.width, s.norm) {
  const int64_t width = s.self.width;
  if (s.mlp.experts > 0)
    experts.emplace(s.mlp);
  else
    mlp.emplace(s.mlp);
  if (s.cross) {
    cross.emplace(*s.cross);
    cross_norm.emplace(width, s.norm);
  }
  if (s.order == BlockSpec::Order::both) {
    after1.emplace(width, s.norm);
    after2.emplace(width, s.norm);
  }
  if (s.scaled) {
    scale1 = Param(ones({width}));
    scale2 = Param(ones({width}));
  }
  register_as(
      this,
      {"", "", "", "", s.norm1, s.norm2, s.cross_norm, s.after1, s.after2, s.scale1, s.scale2},
      self, cross, mlp, experts, norm1, norm2, cross_norm, after1, after2, scale1, scale2);
  static const nn::detail::HeadsKind kind([](const nn::Module& m) {
    const AttentionSpec& own = static_cast<const Block&>(m).spec.self;
    return nn::detail::HeadCounts{own.heads, kv_heads_of(own)};
  });
  state().kind = &kind;
}
Tensor Block::forward(Tensor x, const AttentionCall& call, const Tensor& memory,
                      const AttentionCall& cross_call) {
  const auto beside = [&](Norm& norm, std::optional<Norm>& second, const Param& scale,
                          const auto& f) {
    if (spec.order == BlockSpec::Order::after) return norm(f(x) + x);
    Tensor y = f(norm(x));
    if (second) y = (*second)(std::move(y));
    if (scale.defined()) y = y * scale;
    return x + y;
  };
  std::optional<Norm> none;
  x = beside(norm1, after1, scale1, [&](const Tensor& h) { return self.forward(h, h, call); });
  if (cross)
    x = beside(*cross_norm, none, Param(),
               [&](const Tensor& h) { return cross->forward(h, memory, cross_call); });
  // The MLP has no name of its own: its members are the block's.
  return beside(norm2, after2, scale2, [&](const Tensor& h) {
    return scoped(SourceLocation::here(),
                  [&] { return experts ? experts->forward(h) : mlp->forward(h); });
  });
}

}  // namespace tandem::models::detail
