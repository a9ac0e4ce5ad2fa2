// SPDX-License-Identifier: Apache-2.0
// ONNX's attention ops: Attention with its cache, FlexAttention with graphs that modify scores and
// weights, RotaryEmbedding. 16-bit inputs are computed in f32 and rounded at the end.
#include <cmath>
#include <limits>

#include "tandem/onnx/import/operators/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

Tensor onnx_heads(const Tensor& x, int64_t heads) {
  TD_CHECK(x.dim() == 3 && heads > 0 && x.size(2) % heads == 0, Shape, "{} in {} heads",
           x.shape().to_string(), heads);
  return x.reshape({x.shape(0), x.shape(1), heads, -1}).transpose(1, 2);
}

Tensor onnx_joined_heads(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.shape(0), x.shape(2), -1});
}

Tensor onnx_shared_heads(const Tensor& x, int64_t heads) {
  const int64_t own = x.size(1);
  if (own == heads) return x;
  TD_CHECK(own > 0 && heads % own == 0, Shape, "{} heads of queries share {} of keys", heads, own);
  return repeat_interleave(x, heads / own, 1);
}

namespace {
constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Which keys each query may see: [q, k] or [b, 1, q, k]; undefined: all. A query stands `past`
/// keys after the first one, or where its sequence ends.
Tensor seen_keys(OnnxCall& c, int64_t queries, int64_t keys, int64_t past) {
  const Tensor key = arange(0, keys, 1, DType::i64);
  Tensor at = arange(0, queries, 1, DType::i64).reshape({queries, 1});
  Tensor seen;
  auto only = [&](const Tensor& these) {
    seen = seen.defined() ? logical_and(seen, these) : these;
  };
  if (c.has(6)) {
    const Tensor used = c.x(6).to(DType::i64).reshape({-1, 1, 1, 1});
    only(key < used);
    if (!c.has(4)) at = at + used - queries;
  }
  if (c.has(4)) at = at + past;
  if (c.attr("is_causal", 0)) only(key <= at);
  // A window that reaches over all keys hides none.
  if (const int64_t n = c.attr("left_window_size", -1); n >= 0 && n < queries + keys)
    only(key >= at - n);
  if (const int64_t n = c.attr("right_window_size", -1); n >= 0 && n < queries + keys)
    only(key <= at + n);
  return seen;
}

/// The term added to the scores: the mask, and -inf where a key is not seen; undefined if there is
/// none.
Tensor attention_bias(OnnxCall& c, DType dtype, int64_t queries, int64_t keys, int64_t past) {
  Tensor bias;
  if (c.has(3)) {
    Tensor mask = c.x(3);
    const int64_t missing = keys - mask.size(-1);
    if (is_bool(mask.dtype())) mask = where(mask, 0.0, kNone).to(dtype);
    if (missing > 0) mask = pad(mask, {0, missing}, "constant", kNone);
    bias = mask;
  }
  if (const Tensor seen = seen_keys(c, queries, keys, past); seen.defined()) {
    const Tensor hidden = where(seen, 0.0, kNone).to(dtype);
    bias = bias.defined() ? bias + hidden : hidden;
  }
  return bias;
}

}  // namespace

Tensor onnx_masked_softmax(const Tensor& scores) {
  const Tensor nothing = amax(scores, {-1}, true) == kNone;
  return where(nothing, 0.0, softmax(where(nothing, 0.0, scores).to(scores.dtype()), -1))
      .to(scores.dtype());
}

Tensor onnx_angles(const Tensor& table, const Tensor& at) {
  TD_CHECK(table.dim() == 2 && at.dim() == 2, Shape,
           "expected a table [n, d] and positions [b, t], got {} and {}", table.shape().to_string(),
           at.shape().to_string());
  return index_select(table, 0, at.to(DType::i64).reshape({-1}))
      .reshape({at.shape(0), at.shape(1), 1, -1});
}

Tensor onnx_rotated(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool interleaved) {
  const int64_t size = x.size(3), half = cosine.size(-1), turned = 2 * half;
  TD_CHECK(turned <= size && sine.size(-1) == half, Shape,
           "{} cosines and {} sines do not fit heads of {}", half, sine.size(-1), size);
  const Tensor part = x.narrow(3, 0, turned);
  const Tensor a = interleaved ? part.slice(3, 0, turned, 2) : part.narrow(3, 0, half);
  const Tensor b = interleaved ? part.slice(3, 1, turned, 2) : part.narrow(3, half, half);
  const Tensor real = cosine * a - sine * b, imaginary = sine * a + cosine * b;
  const Tensor y =
      interleaved ? stack({real, imaginary}, -1).reshape(part.shape()) : cat({real, imaginary}, 3);
  return turned < size ? cat({y, x.narrow(3, turned, size - turned)}, 3) : y;
}

namespace {

DType softmax_type(const OnnxCall& c, DType otherwise) {
  if (!c.attribute("softmax_precision")) return otherwise;
  return info_of(static_cast<OnnxType>(c.attr("softmax_precision", 1))).carrier;
}

void attention_of(OnnxCall& c) {
  Tensor q = c.x(0), k = c.x(1), v = c.x(2);
  const bool flat = q.dim() == 3;
  if (flat) {
    q = onnx_heads(q, c.attr("q_num_heads", 0));
    k = onnx_heads(k, c.attr("kv_num_heads", 0));
    v = onnx_heads(v, c.attr("kv_num_heads", 0));
  }
  const DType dtype = q.dtype();
  const int64_t past = c.has(4) ? c.x(4).size(2) : 0;
  if (c.has(4)) k = cat({c.x(4), k}, 2);
  if (c.has(5)) v = cat({c.x(5), v}, 2);
  c.set(1, k);
  c.set(2, v);
  const double scale = c.attr_float("scale", 1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const int64_t heads = q.size(1), mode = c.attr("qk_matmul_output_mode", 0);
  const DType compute = accumulation_dtype(dtype);
  q = q.to(compute);
  k = onnx_shared_heads(k, heads).to(compute);
  v = onnx_shared_heads(v, heads);
  const double root = std::sqrt(scale);
  Tensor scores = matmul(q * root, k * root, MatmulAttrs{false, true});
  Tensor shown = scores;
  if (const double cap = c.attr_float("softcap", 0); cap > 0) scores = tanh(scores / cap) * cap;
  if (mode != 0) shown = scores;
  const Tensor bias = attention_bias(c, compute, q.size(2), k.size(2), past);
  if (bias.defined()) scores = scores + bias;
  if (mode == 2) shown = scores;
  scores = scores.to(softmax_type(c, compute));
  const Tensor weights = bias.defined() ? onnx_masked_softmax(scores) : softmax(scores, -1);
  if (mode == 3) shown = weights;
  c.set(3, shown.to(dtype));
  Tensor y = matmul(weights.to(promote(weights.dtype(), v.dtype())),
                    v.to(promote(weights.dtype(), v.dtype())))
                 .to(dtype);
  if (flat) y = onnx_joined_heads(y);
  c.set(0, y);
}

void flex_attention(OnnxCall& c) {
  const Tensor q = c.x(0), k = onnx_shared_heads(c.x(1), q.size(1)),
               v = onnx_shared_heads(c.x(2), q.size(1));
  TD_CHECK(q.dim() == 4, Shape, "expected [b, h, t, d], got {}", q.shape().to_string());
  const double scale = c.attr_float("scale", 1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const double root = std::sqrt(scale);
  const DType compute = softmax_type(c, accumulation_dtype(q.dtype()));
  Tensor scores = matmul(q * root, k * root, MatmulAttrs{false, true}).to(compute);
  auto changed = [&](const char* name, const Tensor& x) {
    if (!c.attribute(name)) return x;
    const std::vector<OnnxValue> out = c.run_graph(c.graph(name), {OnnxValue(x)});
    TD_CHECK(out.size() == 1, Value, "{} returns {} results", name, out.size());
    return out[0].tensor().to(compute);
  };
  scores = changed("score_mod", scores);
  const Tensor weights = changed("prob_mod", softmax(scores, -1));
  c.set(0, matmul(weights, v.to(compute)).to(v.dtype()));
}

/// x [b, t, h * d] or [b, h, t, d] as [b, t, h, d], turned and put back; tables are inputs 1 and 2
/// of the angles or of the positions `at`.
void turn(OnnxCall& c, const Tensor& cosine, const Tensor& sine) {
  const Tensor original = c.x(0);
  const bool apart = original.dim() == 4;
  const int64_t asked = c.attr("rotary_embedding_dim", 0);
  TD_CHECK(asked == 0 || asked == 2 * cosine.size(-1), Shape,
           "rotary_embedding_dim is {}, the tables hold {} angles", asked, cosine.size(-1));
  // Without a number of heads the tables say how wide one is.
  const int64_t given = c.attr("num_heads", 0);
  TD_CHECK(apart || original.dim() == 3, Shape, "expected 3 or 4 dimensions, got {}",
           original.shape().to_string());
  const int64_t heads = apart || given > 0 ? given : original.size(2) / (2 * cosine.size(-1));
  TD_CHECK(apart || (heads > 0 && original.size(2) % heads == 0), Shape, "{} in {} heads",
           original.shape().to_string(), heads);
  const Tensor x = apart ? original.transpose(1, 2)
                         : original.reshape({original.shape(0), original.shape(1), heads, -1});
  const Tensor y = onnx_rotated(x, cosine, sine, c.attr("interleaved", 0) != 0);
  c.set(0, apart ? contiguous(y.transpose(1, 2)) : y.reshape(original.shape()));
}

void rotary_embedding(OnnxCall& c) {
  auto angles = [&](size_t i) {
    return c.has(3) ? onnx_angles(c.x(i), c.x(3)) : c.x(i).unsqueeze(2);
  };
  turn(c, angles(1), angles(2));
}

// com.microsoft: positions come before the tables; one number is the first of them.
void rotary_embedding_at(OnnxCall& c) {
  TD_CHECK(c.attr("is_packed_batching", 0) == 0 && c.attr_float("scale", 1) == 1, Unsupported,
           "packed batches and scales are not known here");
  const Tensor x = c.x(0);
  TD_CHECK(x.dim() >= 3, Shape, "expected 3 or 4 dimensions, got {}", x.shape().to_string());
  Tensor at = c.x(1).to(DType::i64);
  if (at.dim() < 2) at = at.reshape({-1, 1}) + arange_dim(x.shape(x.dim() == 4 ? 2 : 1));
  turn(c, onnx_angles(c.x(2), at), onnx_angles(c.x(3), at));
}

}  // namespace

std::span<const OnnxRow> onnx_attention_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "Attention",
       23,
       0,
       attention_of,
       {7, 4,
        "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode "
        "right_window_size scale softcap softmax_precision"}},
      {"",
       "RotaryEmbedding",
       23,
       0,
       rotary_embedding,
       {4, 1, "interleaved num_heads rotary_embedding_dim"}},
      {kOnnxMicrosoft,
       "RotaryEmbedding",
       1,
       0,
       rotary_embedding_at,
       {4, 1, "interleaved is_packed_batching num_heads rotary_embedding_dim scale"}},
      {kOnnxPreview,
       "FlexAttention",
       1,
       0,
       flex_attention,
       {3, 1, "prob_mod scale score_mod softmax_precision"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
