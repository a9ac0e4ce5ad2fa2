// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/attention.h"

#include <cmath>
#include <limits>

#include "tandem/base/divisors.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/init.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// [n, l, heads * size] -> [n, heads, l, size]
Tensor split_heads(Tensor x, int64_t size) {
  Shape s{x.shape(0), x.shape(1), floordiv(x.shape(2), size), size};
  return transpose(reshape(std::move(x), s), 1, 2);
}

bool is_bool(const Tensor& m) { return m.dtype() == DType::b8; }

// A bool mask as in PyTorch (true: hidden), converted to one that is added.
Tensor as_added(const Tensor& m, DType dtype) {
  return is_bool(m) ? where(m, full({}, kMinusInfinity, dtype), full({}, 0.0, dtype)) : m.to(dtype);
}

// Combines both masks (true: hidden, or added); either may be undefined.
Tensor combine_masks(const Tensor& a, const Tensor& b, DType dtype) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  if (is_bool(a) && is_bool(b)) return a | b;
  return as_added(a, dtype) + as_added(b, dtype);
}

// Appends columns that every position may attend to.
Tensor extend_mask(const Tensor& mask, int64_t columns) {
  if (!mask.defined()) return mask;
  return pad(mask, {0, columns}, "constant", is_bool(mask) ? Scalar(false) : Scalar(0.0));
}

}  // namespace

KVCache::KVCache(int64_t n, int64_t heads, int64_t max, int64_t size, DType dtype)
    : max_length(max) {
  TD_CHECK(n > 0 && heads > 0 && max > 0 && size > 0, Value,
           "KVCache expects sizes > 0, got {}, {}, {} and {}", n, heads, max, size);
  k = Buffer(zeros({n, heads, max, size}, dtype));
  v = Buffer(zeros({n, heads, max, size}, dtype));
  length = Buffer(zeros({}, DType::i64));
  TD_REGISTER(k, v, length);
}

void KVCache::reset() { length.assign_(0); }

namespace {
constexpr char kAttention = 0;
}
MultiheadAttention* detail::as_attention(Module& m) {
  return m.state().kind == &kAttention ? static_cast<MultiheadAttention*>(&m) : nullptr;
}

MultiheadAttention::MultiheadAttention(Dim e, Dim heads, MultiheadAttentionOptions o)
    : out_proj(e, e, {.bias = o.bias, .dtype = o.dtype}),
      embed_dim(e.value()),
      num_heads(heads.value()),
      num_kv_heads(o.num_kv_heads ? o.num_kv_heads : num_heads),
      options(o) {
  TD_CHECK(num_heads > 0 && embed_dim % num_heads == 0, Value,
           "embed_dim = {} must be a multiple of num_heads = {}\n{}", embed_dim, num_heads,
           divisor_hint("num_heads", num_heads, embed_dim));
  TD_CHECK(num_kv_heads > 0 && num_heads % num_kv_heads == 0, Value,
           "num_heads = {} must be a multiple of num_kv_heads = {}\n{}", num_heads, num_kv_heads,
           divisor_hint("num_kv_heads", num_kv_heads, num_heads));
  TD_CHECK(o.kdim >= 0 && o.vdim >= 0, Value, "kdim and vdim expect sizes >= 0, got {} and {}",
           o.kdim, o.vdim);
  state().kind = &kAttention;
  head_dim = embed_dim / num_heads;
  if (!options.kdim) options.kdim = embed_dim;
  if (!options.vdim) options.vdim = embed_dim;
  int64_t kv = num_kv_heads * head_dim;
  bool packed = options.kdim == embed_dim && options.vdim == embed_dim && kv == embed_dim;
  if (packed) {
    in_proj_weight = Param(init::xavier_uniform({3 * embed_dim, e}, 1, o.dtype));
  } else {
    q_proj_weight = Param(init::xavier_uniform({embed_dim, embed_dim}, 1, o.dtype));
    k_proj_weight = Param(init::xavier_uniform({kv, options.kdim}, 1, o.dtype));
    v_proj_weight = Param(init::xavier_uniform({kv, options.vdim}, 1, o.dtype));
  }
  if (o.bias) {
    in_proj_bias = Param(zeros({embed_dim + 2 * kv}, o.dtype));
    out_proj.bias = Param(zeros({e}, o.dtype));
  }
  if (o.add_bias_kv) {
    double std = std::sqrt(2.0 / static_cast<double>(1 + kv));
    bias_k = Param(init::normal({1, 1, kv}, 0, std, o.dtype));
    bias_v = Param(init::normal({1, 1, kv}, 0, std, o.dtype));
  }
  TD_REGISTER(in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k,
              bias_v, out_proj);
}

// Projects query (0), key (1) or value (2) with its rows of the weight: those of all heads, or of
// the heads that this process holds.
Tensor MultiheadAttention::project(const Tensor& x, int part) const {
  int64_t own = in_proj_weight.defined() ? in_proj_weight.size(0) / 3 : q_proj_weight.size(0);
  int64_t kv = in_proj_weight.defined() ? own : k_proj_weight.size(0);
  int64_t start = part == 0 ? 0 : own + (part - 1) * kv, rows = part == 0 ? own : kv;
  Tensor w = in_proj_weight.defined() ? narrow(in_proj_weight, 0, start, rows)
             : part == 0              ? q_proj_weight.value()
             : part == 1              ? k_proj_weight.value()
                                      : v_proj_weight.value();
  Tensor b = in_proj_bias.defined() ? narrow(in_proj_bias, 0, start, rows) : Tensor();
  return linear(x, std::move(w), std::move(b));
}

// Appends the learned and the zero key and value: k, v [n, heads, s, size].
void MultiheadAttention::extend(Tensor& k, Tensor& v, Tensor& mask) const {
  const auto learned = [&](const Param& b) {
    return b.value()
        .reshape({1, k.shape(1), 1, head_dim})
        .expand({k.shape(0), k.shape(1), 1, head_dim});
  };
  if (bias_k.defined()) {
    k = cat({k, learned(bias_k)}, 2);
    v = cat({v, learned(bias_v)}, 2);
    mask = extend_mask(mask, 1);
  }
  if (options.add_zero_attn) {
    k = pad(k, {0, 0, 0, 1});
    v = pad(v, {0, 0, 0, 1});
    mask = extend_mask(mask, 1);
  }
}

// Append keys and values to the cache and return its whole content; the mask hides later and
// missing steps.
Tensor MultiheadAttention::through_cache(KVCache& c, Tensor& k, Tensor& v, Tensor mask, Dim length,
                                         DType dtype) const {
  TD_CHECK(!bias_k.defined() && !options.add_zero_attn, Unsupported,
           "a cache cannot be combined with add_bias_kv or add_zero_attn");
  NoGradGuard no_grad;
  Tensor at = c.length.value();
  int64_t fresh = k.size(2);
  TD_CHECK(
      is_tracing() || at.item<int64_t>() + fresh <= c.max_length, Index,
      "the cache holds {} steps, and {} more exceed its length {}\nMake it longer, or reset() it.",
      at.item<int64_t>(), fresh, c.max_length);
  c.k.write_(2, at, k);
  c.v.write_(2, at, v);
  c.length.assign_(at + fresh);
  k = c.k;
  v = c.v;
  Dim seen = c.max_length;
  if (!is_tracing()) {  // a trace covers the whole cache
    seen = at.item<int64_t>() + fresh;
    k = narrow(k, 2, 0, seen);
    v = narrow(v, 2, 0, seen);
  }
  Tensor last = at + arange_dim(length).reshape({length, 1});
  return combine_masks(mask, arange_dim(seen).reshape({1, seen}) > last, dtype);
}

// softmax(q k^T / sqrt(size) + mask) v, with the weights; q, k, v [n, heads, steps, size].
AttentionOutput MultiheadAttention::explicit_weights(Tensor q, Tensor k, Tensor v,
                                                     const Tensor& mask, double drop,
                                                     bool average) const {
  int64_t shared = num_heads / num_kv_heads;
  if (shared > 1) {
    k = repeat_interleave(k, shared, 1);
    v = repeat_interleave(v, shared, 1);
  }
  Tensor scores =
      matmul(q * (1 / std::sqrt(static_cast<double>(head_dim))), k, MatmulAttrs{false, true});
  if (mask.defined()) scores = scores + as_added(mask, scores.dtype());
  Tensor p = dropout(softmax(scores, -1), drop, drop > 0);
  return {matmul(p, v), average ? p.mean({1}) : p};
}

AttentionOutput MultiheadAttention::run(Tensor q, Tensor k, Tensor v, const AttentionArguments& a,
                                        bool weights) {
  TD_CHECK((q.dim() == 3 || q.dim() == 2) && k.dim() == q.dim() && v.dim() == q.dim(), Shape,
           "query, key and value expect 3 dimensions (or 2 without a batch), got {}, {} and {}",
           q.shape().to_string(), k.shape().to_string(), v.shape().to_string());
  bool single = q.dim() == 2, causal = a.is_causal;
  if (const auto& entering = state().entering) {
    const Tensor query = entering(q), key = k.impl() == q.impl() ? query : entering(k);
    v = v.impl() == q.impl() ? query : v.impl() == k.impl() ? key : entering(v);
    q = query;
    k = key;
  }
  for (Tensor* t : {&q, &k, &v}) {
    if (single)
      *t = unsqueeze(*t, 0);
    else if (!options.batch_first)
      *t = transpose(*t, 0, 1);
  }
  Dim n = q.shape(0), length = q.shape(1), steps = k.shape(1);
  DType dtype = q.dtype();
  Tensor qh = split_heads(project(q, 0), head_dim), kh = split_heads(project(k, 1), head_dim),
         vh = split_heads(project(v, 2), head_dim);
  Tensor mask = a.mask;
  TD_CHECK(!state().entering || (!weights && (!mask.defined() || mask.dim() < 3)), Unsupported,
           "attention whose heads are shared by several processes takes no mask per head and gives "
           "no weights");
  if (mask.defined() && mask.dim() == 3)  // [n * heads, l, s]
    mask = reshape(mask, {n, num_heads, mask.shape(1), mask.shape(2)});
  if (a.cache) {
    mask = through_cache(*a.cache, kh, vh, mask, length, dtype);
    causal = false;
  }
  bool plain = !mask.defined() && !a.key_padding_mask.defined() && !bias_k.defined() &&
               !options.add_zero_attn && !weights;
  if (causal && !plain) {
    Tensor later = arange_dim(steps).reshape({1, steps}) > arange_dim(length).reshape({length, 1});
    mask = combine_masks(mask, later, dtype);
    causal = false;
  }
  if (a.key_padding_mask.defined()) {
    Tensor p = a.key_padding_mask;
    TD_CHECK(p.dim() == (single ? 1 : 2), Shape, "key_padding_mask expects [{}s], got {}",
             single ? "" : "n, ", p.shape().to_string());
    mask =
        combine_masks(mask, reshape(p, {single ? Dim(1) : p.shape(0), 1, 1, p.shape(-1)}), dtype);
  }
  extend(kh, vh, mask);
  double drop = is_training() ? options.dropout : 0;
  AttentionOutput out;
  if (weights) {
    out = explicit_weights(qh, kh, vh, mask, drop, a.average_attn_weights);
    if (single) out.weights = out.weights.squeeze(0);
  } else {
    if (mask.defined() && is_bool(mask)) mask = logical_not(mask);
    out.y =
        scaled_dot_product_attention(qh, kh, vh, mask, drop, causal, 0, num_kv_heads != num_heads);
  }
  out.y = out_proj(flatten(transpose(out.y, 1, 2), 2, 3));
  if (single)
    out.y = out.y.squeeze(0);
  else if (!options.batch_first)
    out.y = transpose(out.y, 0, 1);
  return out;
}

Tensor MultiheadAttention::forward(Tensor q, Tensor k, Tensor v, AttentionArguments a) {
  return run(std::move(q), std::move(k), std::move(v), a, false).y;
}

Tensor MultiheadAttention::operator()(Tensor q, Tensor k, Tensor v, AttentionArguments a,
                                      SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(q), std::move(k), std::move(v), a); });
}

AttentionOutput MultiheadAttention::with_weights(Tensor q, Tensor k, Tensor v, AttentionArguments a,
                                                 SourceLocation loc) {
  return scoped(loc, [&] { return run(std::move(q), std::move(k), std::move(v), a, true); });
}

}  // namespace tandem::nn
