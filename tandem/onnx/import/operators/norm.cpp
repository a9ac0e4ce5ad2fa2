// SPDX-License-Identifier: Apache-2.0
// ONNX normalisations. Statistics of 16-bit inputs are computed in f32 (`stash_type`).
#include <algorithm>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/window_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// [c] as [1, c, 1, ...], to broadcast against x.
Tensor per_channel(const Tensor& v, const Tensor& x) {
  Shape s(1, -1);
  for (int d = 2; d < x.dim(); ++d) s.push_back(1);
  return v.reshape(s);
}
Tensor wide(const Tensor& x) { return is_short_float(x.dtype()) ? x.to(DType::f32) : x; }
IntList dims_from(int first, int rank) {
  IntList d;
  for (int i = first; i < rank; ++i) d.push_back(i);
  return d;
}

void batch_norm_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const double eps = c.attr_float("epsilon", 1e-5), momentum = c.attr_float("momentum", 0.9);
  // Before opset 14 OnnxLoadOptions::trainable decides.
  const bool training =
      c.attr("training_mode", 0) != 0 || (!c.attr("is_test", c.version() >= 7) && c.wants(1));
  TD_CHECK(c.attr("spatial", 1) != 0, Unsupported,
           "spatial = 0, statistics for every place of a plane, is not known here");
  const Tensor v = wide(x);
  Tensor mean_ = wide(c.x(3)), var_ = wide(c.x(4));
  if (training && c.value(1).tensor().dtype() == x.dtype() &&
      (x.dtype() == DType::f32 || x.dtype() == DType::f64)) {
    const BatchNormStats y = batch_norm_stats(x, c.x(1), c.x(2), eps);
    c.set(0, y.y);
    c.set(1, (mean_ * momentum + y.mean * (1 - momentum)).to(c.value(3).tensor().dtype()));
    c.set(2, (var_ * momentum + y.var * (1 - momentum)).to(c.value(4).tensor().dtype()));
    return;
  }
  if (training) {
    IntList dims{0};
    for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
    const Tensor m = mean(v, dims), s = var(v, dims, 0);
    c.set(1, (mean_ * momentum + m * (1 - momentum)).to(c.value(3).tensor().dtype()));
    c.set(2, (var_ * momentum + s * (1 - momentum)).to(c.value(4).tensor().dtype()));
    mean_ = m;
    var_ = s;
  }
  const auto same = [&](size_t i) { return c.value(i).tensor().dtype() == v.dtype(); };
  if (!training && same(1) && same(2) && mean_.dtype() == v.dtype() && var_.dtype() == v.dtype() &&
      is_floating(v.dtype()) && v.dim() >= 2)
    return c.set_like(0, batch_norm(v, mean_, var_, c.x(1), c.x(2), false, 0.1, eps).y);
  const Tensor factor = wide(c.x(1)) / sqrt(var_ + eps);
  c.set_like(0,
             (v - per_channel(mean_, x)) * per_channel(factor, x) + per_channel(wide(c.x(2)), x));
}

void instance_norm_of(OnnxCall& c) {
  const Tensor x = c.x(0), v = wide(x);
  const IntList dims = dims_from(2, x.dim());
  const Tensor m = mean(v, dims, true), s = var(v, dims, 0, true);
  const Tensor y = (v - m) / sqrt(s + c.attr_float("epsilon", 1e-5));
  c.set_like(0, y * per_channel(wide(c.x(1)), x) + per_channel(wide(c.x(2)), x));
}

// Whether the row layer_norm applies: f32, weights of the normalised shape, statistics unused.
bool is_whole_norm(const OnnxCall& c, const Tensor& x, int axis) {
  if (x.dtype() != DType::f32 || c.wants(1) || c.wants(2)) return false;
  for (size_t i = 1; i <= 2; ++i) {
    if (!c.has(i)) continue;
    const Tensor& w = c.value(i).tensor();
    if (w.dtype() != x.dtype() || w.dim() != x.dim() - axis) return false;
    for (int d = 0; d < w.dim(); ++d)
      if (!(w.shape(d) == x.shape(axis + d))) return false;
  }
  return true;
}

void layer_norm_of(OnnxCall& c) {
  const Tensor x = c.x(0), v = wide(x);
  const int axis = c.axis("axis", -1, x.dim());
  if (is_whole_norm(c, x, axis)) {
    Shape last;
    for (int d = axis; d < x.dim(); ++d) last.push_back(x.shape(d));
    c.set(0, layer_norm(x, last, c.x(1), c.x_or_none(2), c.attr_float("epsilon", 1e-5)));
    return;
  }
  const IntList dims = dims_from(axis, x.dim());
  const Tensor m = mean(v, dims, true);
  const Tensor inverse = rsqrt(var(v, dims, 0, true) + c.attr_float("epsilon", 1e-5));
  Tensor y = ((v - m) * inverse).to(x.dtype()) * c.x(1);
  if (c.has(2)) y = y + c.x(2);
  c.set_like(0, y);
  c.set(1, m);
  c.set(2, inverse);
}

void rms_norm_of(OnnxCall& c) {
  const Tensor x = c.x(0), v = wide(x);
  const IntList dims = dims_from(c.axis("axis", -1, x.dim()), x.dim());
  const Tensor y = v * rsqrt(mean(square(v), dims, true) + c.attr_float("epsilon", 1e-5));
  c.set(0, y.to(x.dtype()) * c.x(1));
}

/// x [n, c, ...] normalised in groups of channels, in x's dtype or f32.
Tensor in_groups(const Tensor& x, int64_t groups, Tensor scale, Tensor bias, double eps) {
  const Tensor v = wide(x);
  const int64_t n = x.size(0), channels = x.size(1);
  TD_CHECK(groups > 0 && channels % groups == 0, Shape, "{} channels in {} groups", channels,
           groups);
  const Tensor g = v.reshape({n, groups, -1});
  const Tensor m = mean(g, {-1}, true), s = var(g, {-1}, 0, true);
  const Tensor y = ((g - m) / sqrt(s + eps)).reshape(x.shape());
  scale = wide(scale);
  bias = wide(bias);
  if (scale.size(0) != channels) {  // opset 18 to 20: one per group
    scale = repeat_interleave(scale, channels / groups, 0);
    bias = repeat_interleave(bias, channels / groups, 0);
  }
  return y * per_channel(scale, x) + per_channel(bias, x);
}

void group_norm_of(OnnxCall& c) {
  c.set_like(
      0, in_groups(c.x(0), c.attr("num_groups", 1), c.x(1), c.x(2), c.attr_float("epsilon", 1e-5)));
}

// com.microsoft: GroupNorm of x [n, ..., c] or [n, c, ...], with or without sums before it.
void group_norm_of_sum(OnnxCall& c) {
  const bool last = c.attr("channels_last", 1), silu_after = c.attr("activation", 0);
  Tensor x = c.x(0);
  TD_CHECK(x.dim() >= 3, Shape, "expected at least 3 dimensions, got {}", x.shape().to_string());
  if (!last) x = onnx_channels_last(x);
  if (c.has(3)) {
    Tensor skip = c.x(3);
    if (skip.dim() == 2) skip = skip.reshape({skip.shape(0), 1, 1, skip.shape(1)});
    x = x + skip;
  }
  if (c.has(4)) x = x + c.x(4);
  Tensor y = in_groups(onnx_channels_first(x), c.attr("groups", 1), c.x(1), c.x(2),
                       c.attr_float("epsilon", 1e-5));
  if (silu_after) y = silu(y);
  c.set_like(0, last ? onnx_channels_last(y) : y);
  c.set(1, last ? x : onnx_channels_first(x));
}

// com.microsoft: x + skip (+ bias), normalised over the last dimension.
template <bool centred_too>
void skip_norm(OnnxCall& c) {
  constexpr size_t kBias = centred_too ? 4 : 3;
  Tensor x = c.x(0) + c.x(1);
  if (c.has(kBias)) x = x + c.x(kBias);
  const double eps = c.attr_float("epsilon", 1e-12);
  const Shape last{x.shape(-1)};
  c.set_like(0, centred_too ? layer_norm(x, last, c.x(2), c.x_or_none(3), eps)
                            : rms_norm(x, last, c.x(2), eps));
  const Tensor v = wide(x);
  if (c.wants(1)) c.set(1, mean(v, {-1}, true));
  if (c.wants(2))
    c.set(2, rsqrt((centred_too ? var(v, {-1}, 0, true) : mean(square(v), {-1}, true)) + eps));
  c.set(3, x);
}

// Of domain ai.onnx in onnxruntime.
void simplified_norm(OnnxCall& c) {
  rms_norm_of(c);
  const Tensor v = wide(c.x(0));
  if (!c.wants(1)) return;
  const IntList dims = dims_from(c.axis("axis", -1, v.dim()), v.dim());
  c.set(1, rsqrt(mean(square(v), dims, true) + c.attr_float("epsilon", 1e-5)));
}

// com.microsoft: words, positions and segments of BERT, summed and normalised.
void embed_norm(OnnxCall& c) {
  const Tensor ids = c.x(0);
  TD_CHECK(ids.dim() == 2, Shape, "expected ids [b, t], got {}", ids.shape().to_string());
  auto rows = [&](size_t table, const Tensor& at) {
    const Tensor flat = index_select(c.x(table), 0, at.to(DType::i64).reshape({-1}));
    return flat.reshape({at.shape(0), at.shape(1), -1});
  };
  const Tensor at = c.has(8) ? c.x(8) : arange_dim(ids.shape(1)).unsqueeze(0);
  Tensor x = rows(2, ids) + rows(3, at);
  if (c.has(1)) x = x + rows(4, c.x(1));
  c.set(0, layer_norm(x, {x.shape(-1)}, c.x(5), c.x_or_none(6), c.attr_float("epsilon", 1e-12)));
  c.set(1, c.has(7) ? sum(c.x(7) != 0, {1}).to(DType::i32) : zeros({ids.shape(0)}, DType::i32));
  c.set(2, x);
}

void lp_normalization(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", -1, x.dim());
  const int64_t p = c.attr("p", 2);
  const Tensor norm_ = p == 1 ? sum(abs(x), {d}, true) : sqrt(sum(square(x), {d}, true));
  c.set_like(0, where(norm_ == 0, 0, x / norm_));
}

void mean_variance(OnnxCall& c) {
  const Tensor x = c.x(0), v = wide(x);
  IntList dims;
  for (const int64_t a : c.attr_ints("axes", {0, 2, 3})) dims.push_back(normalize_dim(a, x.dim()));
  const Tensor m = mean(v, dims, true);
  const Tensor deviation = sqrt(mean(square(v), dims, true) - square(m));
  c.set_like(0, (v - m) / (deviation + 1e-9));
}

void local_response(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t size = c.attr("size", 1), channels = x.size(1);
  TD_CHECK(size > 0, Value, "expected a positive size");
  // A window wider than all channels on both sides adds only zeros.
  const int64_t before = std::min((size - 1) / 2, channels), after = std::min(size / 2, channels);
  const double alpha = c.attr_float("alpha", 1e-4), beta = c.attr_float("beta", 0.75),
               bias = c.attr_float("bias", 1.0);
  PadAttrs a;
  a.value = 0.0;
  for (int d = 0; d < x.dim(); ++d) {
    a.before.push_back(d == 1 ? before : 0);
    a.after.push_back(d == 1 ? after : 0);
  }
  const Tensor squares = call(op::pad, &a, SourceLocation::here(), square(x));
  Tensor total = squares.narrow(1, 0, channels);
  for (int64_t i = 1; i <= before + after; ++i) total = total + squares.narrow(1, i, channels);
  c.set_like(0, x / pow(total * (alpha / static_cast<double>(size)) + bias, beta));
}

}  // namespace

std::span<const OnnxRow> onnx_norm_rows() {
  static constexpr OnnxRow kRows[] = {
      settings_from(3, {"",
                        "BatchNormalization",
                        1,
                        0,
                        batch_norm_of,
                        {5, 5, "epsilon is_test momentum spatial training_mode"},
                        &op::batch_norm_infer,
                        export_batch_norm}),
      {"", "InstanceNormalization", 1, 0, instance_norm_of, {3, 1, "epsilon"}},
      {"",
       "LayerNormalization",
       17,
       0,
       layer_norm_of,
       {3, 3, "axis epsilon ~stash_type"},
       &op::layer_norm,
       export_layer_norm},
      {"", "RMSNormalization", 23, 0, rms_norm_of, {2, 1, "axis epsilon ~stash_type"}},
      {"", "GroupNormalization", 18, 0, group_norm_of, {3, 1, "epsilon num_groups ~stash_type"}},
      {"",
       "SimplifiedLayerNormalization",
       1,
       0,
       simplified_norm,
       {2, 2, "axis epsilon ~stash_type"}},
      {kOnnxMicrosoft, "SkipLayerNormalization", 1, 0, skip_norm<true>, {5, 4, "epsilon"}},
      {kOnnxMicrosoft,
       "SkipSimplifiedLayerNormalization",
       1,
       0,
       skip_norm<false>,
       {4, 4, "epsilon"}},
      {kOnnxMicrosoft,
       "EmbedLayerNormalization",
       1,
       0,
       embed_norm,
       {9, 3, "epsilon ~mask_index_type"}},
      {kOnnxMicrosoft,
       "GroupNorm",
       1,
       0,
       group_norm_of_sum,
       {3, 1, "activation channels_last epsilon groups"}},
      {kOnnxMicrosoft,
       "SkipGroupNorm",
       1,
       0,
       group_norm_of_sum,
       {5, 2, "activation channels_last epsilon groups"}},
      {"", "LpNormalization", 1, 0, lp_normalization, {1, 1, "axis p"}},
      {"", "MeanVarianceNormalization", 9, 0, mean_variance, {1, 1, "axes"}},
      {"", "LRN", 1, 0, local_response, {1, 1, "alpha beta bias size"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
