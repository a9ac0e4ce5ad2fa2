// SPDX-License-Identifier: Apache-2.0
// ONNX's recurrent attention: LinearAttention step by step, and the causal convolution before it.
#include <cmath>

#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

Tensor unpacked(const Tensor& x, int64_t heads) {
  TD_CHECK(x.dim() == 3 && heads > 0 && x.size(2) % heads == 0, Shape,
           "expected [b, t, heads * d] for {} heads, got {}", heads, x.shape().to_string());
  return x.reshape({x.shape(0), x.shape(1), heads, -1}).transpose(1, 2).to(DType::f32);
}

void linear_attention(OnnxCall& c) {
  const int64_t q_heads = c.attr("q_num_heads", 0), heads = c.attr("kv_num_heads", 0);
  TD_CHECK(heads > 0 && q_heads > 0 && q_heads % heads == 0, Value,
           "q_num_heads {} is not a multiple of kv_num_heads {}", q_heads, heads);
  const std::string rule =
      c.attr_choice("update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"});
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  const Tensor q = unpacked(c.x(0), q_heads), k = unpacked(c.x(1), heads),
               v = unpacked(c.x(2), heads);
  const DType dtype = c.x(0).dtype();
  const int64_t batch = q.size(0), steps = q.size(2), dk = k.size(3), dv = v.size(3);
  Tensor state = c.has(3) ? c.x(3).to(DType::f32) : zeros({batch, heads, dk, dv});
  Tensor decay, beta;  // [b, h, t, dk or 1], [b, h or 1, t, 1]
  if (gated) decay = exp(unpacked(c.x(4), heads));
  if (delta) beta = c.x(5).to(DType::f32).transpose(1, 2).unsqueeze(3);
  const double given = c.attr_float("scale", 0);
  const double scale = given == 0 ? 1.0 / std::sqrt(static_cast<double>(dk)) : given;
  std::vector<Tensor> out;
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor kt = k.select(2, t).unsqueeze(-1);  // [b, h, dk, 1]
    Tensor vt = v.select(2, t).unsqueeze(-2);        // [b, h, 1, dv]
    if (gated) state = state * decay.select(2, t).unsqueeze(-1);
    if (delta) {
      const Tensor known = matmul(kt, state, MatmulAttrs{true, false});
      vt = beta.select(2, t).unsqueeze(-1) * (vt - known);
    }
    state = state + kt * vt;
    const Tensor seen = q_heads == heads ? state : repeat_interleave(state, q_heads / heads, 1);
    out.push_back(matmul(q.select(2, t).unsqueeze(-2), seen) * scale);  // [b, hq, 1, dv]
  }
  TD_CHECK(!out.empty(), Shape, "there are no steps");
  c.set(0, cat(out, 2).transpose(1, 2).reshape({batch, steps, q_heads * dv}).to(dtype));
  c.set(1, state.to(c.has(3) ? c.x(3).dtype() : dtype));
}

void causal_conv(OnnxCall& c) {
  const Tensor x = c.x(0), w = c.x(1);
  TD_CHECK(x.dim() == 3 && w.dim() == 3, Shape, "expected [b, c, t] and [c, 1, k]");
  const int64_t past = w.size(2) - 1;
  const Tensor before = c.has(3) ? c.x(3) : zeros({x.shape(0), x.shape(1), past}, x.dtype());
  const Tensor all = past > 0 ? cat({before, x}, 2) : x;
  Tensor y = conv1d(all, w, c.x_or_none(2), {1}, {0}, {1}, x.size(1));
  const std::string activation = c.attr_choice("activation", "none", {"none", "silu", "swish"});
  if (activation != "none") y = silu(y);
  c.set(0, y);
  c.set(1, all.narrow(2, all.size(2) - past, past));
}

}  // namespace

std::span<const OnnxRow> onnx_linear_attention_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "LinearAttention",
       27,
       0,
       linear_attention,
       {6, 2, "kv_num_heads q_num_heads scale update_rule ~chunk_size"}},
      {"", "CausalConvWithState", 27, 0, causal_conv, {4, 2, "activation"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
