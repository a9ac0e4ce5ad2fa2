// SPDX-License-Identifier: Apache-2.0
// onnxruntime's attention ops (domain com.microsoft): Attention and QAttention with their own
// projections, MultiHeadAttention, GroupQueryAttention with its cache. All are softmax(q k^T *
// scale
// + mask) v; they differ in how inputs are laid out and what a mask is.
#include <cmath>
#include <limits>

#include "tandem/onnx/import/operators/attention_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// What is attended: [b, h, t, d], and terms of the scores.
struct Attended {
  Tensor q, k, v;
  Tensor bias;  ///< undefined: none
  double scale = 1, cap = 0;
  Tensor sink;    ///< [h]: one more term exp(sink) in the denominator of softmax, if defined
  Tensor scores;  ///< what went into softmax

  void add(const Tensor& term) { bias = bias.defined() ? bias + term : term; }

  Tensor run(DType dtype) {
    const int64_t heads = q.size(1);
    const DType compute = accumulation_dtype(dtype);
    k = onnx_shared_heads(k, heads);
    v = onnx_shared_heads(v, heads);
    TD_CHECK(k.size(3) == q.size(3) && k.size(2) == v.size(2), Shape,
             "queries {}, keys {} and values {} do not fit", q.shape().to_string(),
             k.shape().to_string(), v.shape().to_string());
    scores = matmul(q.to(compute), k.to(compute), MatmulAttrs{false, true}) * scale;
    if (cap > 0) scores = tanh(scores / cap) * cap;
    if (bias.defined()) scores = scores + bias;
    Tensor weights;
    if (sink.defined()) {
      const Tensor more = expand(sink.to(compute).reshape({1, -1, 1, 1}),
                                 {scores.shape(0), scores.shape(1), scores.shape(2), 1});
      weights = softmax(cat({scores, more}, 3), -1).narrow(3, 0, scores.size(3));
    } else {
      weights = bias.defined() ? onnx_masked_softmax(scores) : softmax(scores, -1);
    }
    return onnx_joined_heads(matmul(weights, v.to(compute))).to(dtype);
  }
};

/// The term for a mask of Attention and MultiHeadAttention: lengths [b], ends and starts [2b], or
/// numbers [b, t] and [b, q, t], 0 where a key is hidden.
Tensor mask_term(const Tensor& mask, int64_t batch, int64_t keys, double hidden) {
  Tensor seen;
  const Tensor key = arange(0, keys, 1, DType::i64);
  const int64_t n = mask.dim() == 1 ? mask.size(0) : 0;
  if (mask.dim() == 1 && (n == batch || n == 2 * batch)) {
    const Tensor at = mask.to(DType::i64);
    seen = key < at.narrow(0, 0, batch).unsqueeze(1);
    if (n != batch) seen = logical_and(seen, key >= at.narrow(0, batch, batch).unsqueeze(1));
    seen = seen.reshape({batch, 1, 1, keys});
  } else {
    TD_CHECK((mask.dim() == 2 || mask.dim() == 3) && mask.size(-1) == keys, Unsupported,
             "a mask {} for {} keys of {} sequences is not known here", mask.shape().to_string(),
             keys, batch);
    seen = (mask != 0).unsqueeze(1);
    if (mask.dim() == 2) seen = seen.unsqueeze(1);
  }
  return where(seen, 0.0, hidden).to(DType::f32);
}

/// -inf for keys after a query whose position is `past` keys from the first.
Tensor causal_term(int64_t queries, int64_t keys, int64_t past) {
  const Tensor at = arange(0, queries, 1, DType::i64).reshape({queries, 1}) + past;
  return where(arange(0, keys, 1, DType::i64) <= at, 0.0, kHidden).to(DType::f32);
}

double scale_of(const OnnxCall& c, const Tensor& q) {
  const double given = c.attr_float("scale", 0);
  return given != 0 ? given : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
}

int64_t heads_in(const OnnxCall& c, const char* name) {
  const int64_t n = c.attr(name, 0);
  TD_CHECK(n > 0, Value, "expected a positive {}, got {}", name, n);
  return n;
}

/// Attention on projected `x` [b, t, q + k + v]. The inputs of the mask, of what is cached and of a
/// term for the scores.
void self_attention(OnnxCall& c, const Tensor& x, std::vector<int64_t> sizes, size_t mask,
                    size_t cache, size_t term) {
  TD_CHECK(c.attr("do_rotary", 0) == 0 && c.attr("past_present_share_buffer", 0) == 0, Unsupported,
           "do_rotary and past_present_share_buffer are not known here");
  const int64_t heads = heads_in(c, "num_heads");
  if (sizes.empty()) sizes.assign(3, x.size(2) / 3);
  TD_CHECK(sizes.size() == 3 && sizes[0] > 0 && sizes[1] == sizes[0] && sizes[2] > 0 &&
               sizes[0] + sizes[1] + sizes[2] == x.size(2),
           Shape, "{} features are not those of queries, keys and values", x.size(2));
  const std::vector<Tensor> parts = split(x, sizes, 2);
  Attended a{
      onnx_heads(parts[0], heads), onnx_heads(parts[1], heads), onnx_heads(parts[2], heads), {}};
  int64_t past = 0;
  if (c.has(cache)) {
    const Tensor t = c.x(cache);
    TD_CHECK(t.dim() == 5 && t.size(0) == 2, Shape,
             "expected keys and values [2, b, h, t, d], got {}", t.shape().to_string());
    past = t.size(3);
    a.k = cat({t.select(0, 0), a.k}, 2);
    a.v = cat({t.select(0, 1), a.v}, 2);
  }
  if (c.wants(1)) c.set(1, stack({a.k, a.v}, 0));
  a.scale = scale_of(c, a.q);
  const int64_t keys = a.k.size(2);
  const double hidden = c.attr_float("mask_filter_value", -10000.0);
  if (c.has(mask)) a.add(mask_term(c.x(mask), x.size(0), keys, hidden));
  if (c.attr("unidirectional", 0)) a.add(causal_term(a.q.size(2), keys, past));
  if (c.has(term)) a.add(c.x(term));
  c.set(0, a.run(x.dtype()));
}

void fused_self_attention(OnnxCall& c) {
  TD_CHECK(c.x(0).dim() == 3 && c.x(1).dim() == 2, Shape, "expected [b, t, n] and weights [n, m]");
  Tensor x = matmul(c.x(0), c.x(1));
  if (c.has(2)) x = x + c.x(2);
  self_attention(c, x, c.attr_ints("qkv_hidden_sizes"), 3, 4, 5);
}

void quantised_attention(OnnxCall& c) {
  TD_CHECK(c.x(0).dim() == 3 && c.x(1).dim() == 2, Shape, "expected [b, t, n] and weights [n, m]");
  const Tensor y = matmul(onnx_centred(c, 0, 6, -1), onnx_centred(c, 1, 7, -1)).to(DType::f32);
  const Tensor scale = onnx_single(c, 3) * onnx_beside(c.x(4), y, -1);
  self_attention(c, y * scale + c.x(2), {}, 5, 8, kOnnxAny);
}

/// Queries, keys and values of MultiHeadAttention, whichever way they are packed.
Attended unpacked_heads(OnnxCall& c, int64_t heads) {
  const Tensor q = c.x(0);
  if (q.dim() == 5) {  // [b, t, h, 3, d]
    auto part = [&](int64_t i) { return q.select(3, i).transpose(1, 2); };
    return {part(0), part(1), part(2), {}};
  }
  const Tensor k = c.x(1);
  if (k.dim() == 5) {  // [b, t, h, 2, d]
    auto part = [&](int64_t i) { return k.select(3, i).transpose(1, 2); };
    return {onnx_heads(q, heads), part(0), part(1), {}};
  }
  const Tensor v = c.x(2);
  auto apart = [&](const Tensor& t) { return t.dim() == 4 ? t : onnx_heads(t, heads); };
  return {onnx_heads(q, heads), apart(k), apart(v), {}};
}

void multi_head_attention(OnnxCall& c) {
  TD_CHECK(!c.has(8) && !c.has(9), Unsupported,
           "caches that are shared or searched by beams are not known here");
  const int64_t heads = heads_in(c, "num_heads");
  const DType dtype = c.x(0).dtype();
  Attended a = unpacked_heads(c, heads);
  if (c.has(3)) {  // of queries, keys and values, in one row
    const int64_t width = heads * a.q.size(3), keys = heads * a.k.size(3);
    const std::vector<Tensor> b = split(c.x(3), {width, keys, heads * a.v.size(3)}, 0);
    auto beside = [&](const Tensor& t) { return t.reshape({1, heads, 1, -1}); };
    a.q = a.q + beside(b[0]);
    const bool given = c.has(1) && c.x(1).dim() == 4;  // keys of another layer's cache
    if (!given) a.k = a.k + beside(b[1]);
    if (!given) a.v = a.v + beside(b[2]);
  }
  int64_t past = 0;
  if (c.has(6)) {
    past = c.x(6).size(2);
    a.k = cat({c.x(6), a.k}, 2);
    a.v = cat({c.x(7), a.v}, 2);
  }
  c.set(1, a.k);
  c.set(2, a.v);
  a.scale = scale_of(c, a.q);
  const int64_t keys = a.k.size(2);
  const double hidden = c.attr_float("mask_filter_value", -10000.0);
  if (c.has(4)) a.add(mask_term(c.x(4), a.q.size(0), keys, hidden));
  if (c.attr("unidirectional", 0)) a.add(causal_term(a.q.size(2), keys, past));
  if (c.has(5)) a.add(c.x(5));
  c.set(0, a.run(dtype));
  if (c.wants(3)) c.set(3, a.scores.to(dtype));
}

/// The cache of GroupQueryAttention: [b, h, n, d] with `fresh` at `past` of each sequence.
Tensor cached(const Tensor& old, const Tensor& fresh, const Tensor& past, int64_t total) {
  const int64_t before = old.defined() ? old.size(2) : 0, steps = fresh.size(2);
  const int64_t n = std::max(before, total);
  if (before == 0 && n == steps) return fresh;
  const Tensor all = old.defined() ? cat({old, fresh}, 2) : fresh;
  const Tensor at = arange(0, n, 1, DType::i64), from = past.reshape({-1, 1});
  const Tensor inside = logical_and(at >= from, at < from + steps);
  const Tensor i = where(inside, at - from + before, clamp(at, 0, before + steps - 1));
  const Tensor index =
      expand(i.reshape({-1, 1, n, 1}), {all.shape(0), all.shape(1), n, all.shape(3)});
  return gather(all, 2, index);
}

/// What of GroupQueryAttention is not here, by name.
void check_group_query(OnnxCall& c) {
  for (const char* name : {"k_quant_type", "v_quant_type"}) c.attr_choice(name, "NONE", {"NONE"});
  TD_CHECK(c.attr("sliding_window_cache", 0) == 0 && c.attr("qk_output", 0) == 0, Unsupported,
           "sliding_window_cache and qk_output are not known here");
  TD_CHECK(!c.has(12) && !c.has(13), Unsupported, "caches of low-bit numbers are not supported");
}

void group_query_attention(OnnxCall& c) {
  check_group_query(c);
  const int64_t heads = heads_in(c, "num_heads"), shared = heads_in(c, "kv_num_heads");
  const Tensor x = c.x(0);
  TD_CHECK(x.dim() == 3, Shape, "expected queries [b, t, n], got {}", x.shape().to_string());
  Attended a;
  if (c.has(1)) {
    a = {onnx_heads(x, heads), onnx_heads(c.x(1), shared), onnx_heads(c.x(2), shared), {}};
  } else {
    const int64_t d = x.size(2) / (heads + 2 * shared);
    TD_CHECK(d > 0 && d * (heads + 2 * shared) == x.size(2), Shape,
             "{} features in {} heads of queries and 2 times {} of keys", x.size(2), heads, shared);
    const std::vector<Tensor> parts = split(x, {heads * d, shared * d, shared * d}, 2);
    a = {onnx_heads(parts[0], heads),
         onnx_heads(parts[1], shared),
         onnx_heads(parts[2], shared),
         {}};
  }
  if (c.has(14) && c.has(15)) {
    const double eps = c.attr_float("qk_norm_epsilon", 1e-6);
    a.q = rms_norm(a.q, {a.q.shape(3)}, c.x(14), eps);
    a.k = rms_norm(a.k, {a.k.shape(3)}, c.x(15), eps);
  }
  const int64_t steps = x.size(1), total = c.int_at(6);
  TD_CHECK(total >= steps && total < (int64_t{1} << 28), Value,
           "total_sequence_length is {} for {} new tokens", total, steps);
  // In the first prompt every sequence starts at 0, however long it is.
  const Tensor used = c.x(5).to(DType::i64).reshape({-1}) + 1;
  const Tensor past = total == steps ? zeros_like(used) : used - steps;
  const Tensor at = past.unsqueeze(1) + arange(0, steps, 1, DType::i64);  // [b, t]
  if (c.attr("do_rotary", 0)) {
    const Tensor place = c.has(9) && total != steps ? c.x(9) : at;
    const Tensor cosine = onnx_angles(c.x(7), place), sine = onnx_angles(c.x(8), place);
    const bool pairs = c.attr("rotary_interleaved", 0);
    auto turned = [&](const Tensor& t) {
      return onnx_rotated(t.transpose(1, 2), cosine, sine, pairs).transpose(1, 2);
    };
    a.q = turned(a.q);
    a.k = turned(a.k);
  }
  a.k = cached(c.x_or_none(3), a.k, past, total);
  a.v = cached(c.x_or_none(4), a.v, past, total);
  c.set(1, contiguous(a.k));
  c.set(2, contiguous(a.v));
  a.k = a.k.narrow(2, 0, total);
  a.v = a.v.narrow(2, 0, total);
  const Tensor key = arange(0, total, 1, DType::i64);
  const Tensor place = at.reshape({-1, 1, steps, 1});
  Tensor seen = c.attr("causal", 1) ? key <= place : key < used.reshape({-1, 1, 1, 1});
  const int64_t window = c.attr("local_window_size", -1);
  if (window >= 0 && window < total) seen = logical_and(seen, key > place - window);
  a.add(where(seen, 0.0, kHidden).to(DType::f32));
  if (c.has(10)) a.add(c.x(10));
  a.scale = scale_of(c, a.q);
  a.cap = c.attr_float("softcap", 0);
  if (c.has(11))
    a.sink = c.x(11);
  else if (c.attr("smooth_softmax", -1) > 0)
    a.sink = zeros({heads});
  c.set(0, a.run(x.dtype()));
}

}  // namespace

std::span<const OnnxRow> onnx_fused_attention_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxMicrosoft,
       "Attention",
       1,
       0,
       fused_self_attention,
       {7, 2,
        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes scale "
        "unidirectional ~rotary_embedding_dim"}},
      {kOnnxMicrosoft,
       "QAttention",
       1,
       0,
       quantised_attention,
       {9, 2,
        "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"}},
      {kOnnxMicrosoft,
       "MultiHeadAttention",
       1,
       0,
       multi_head_attention,
       {10, 4, "mask_filter_value num_heads scale unidirectional"}},
      {kOnnxMicrosoft,
       "GroupQueryAttention",
       1,
       0,
       group_query_attention,
       {16, 4,
        "causal do_rotary k_quant_type kv_num_heads local_window_size num_heads qk_norm_epsilon "
        "qk_output rotary_interleaved scale sliding_window_cache smooth_softmax softcap "
        "v_quant_type ~kv_cache_bit_width"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
