// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/nn/functional.h"

#include "tandem/ops/conv/conv.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"

namespace tandem {
namespace {

using detail::composed;

void check_bags(const Tensor& x, const Tensor& weight, const EmbeddingBagArguments& a) {
  TD_CHECK(a.mode == "sum" || a.mode == "mean" || a.mode == "max", Value,
           "knows the modes sum, mean and max, got \"{}\"", a.mode);
  TD_CHECK(weight.dim() == 2, Shape, "weight expects 2 dimensions, got {}",
           weight.shape().to_string());
  TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "expected x [bags, n] or [n], got {}",
           x.shape().to_string());
  TD_CHECK((x.dim() == 1) == a.offsets.defined(), Shape,
           "expected offsets for x of 1 dimension and none for 2, x is {}", x.shape().to_string());
  TD_CHECK(!a.offsets.defined() || a.offsets.dim() == 1, Shape,
           "offsets expect 1 dimension, got {}",
           a.offsets.defined() ? a.offsets.shape().to_string() : "");
  const Tensor& w = a.per_sample_weights;
  TD_CHECK(!w.defined() || a.mode == "sum", Value,
           "per_sample_weights are for mode \"sum\", the mode is \"{}\"", a.mode);
  TD_CHECK(!w.defined() || w.shape() == x.shape(), Shape,
           "per_sample_weights are {}, x is {}: they must have one shape",
           w.defined() ? w.shape().to_string() : "", x.shape().to_string());
}

// The bag of each input, and their number.
struct Bags {
  Tensor of;
  Dim count;
};
Bags bags_of(const Tensor& x, const EmbeddingBagArguments& a) {
  const Dim n = x.shape().numel();
  if (x.dim() == 2) {
    const Dim bags = x.shape(0);
    return {arange_dim(bags).reshape({bags, 1}).expand(x.shape()).reshape({n}), bags};
  }
  Tensor offsets = a.offsets;
  Dim bags = offsets.shape(0);
  if (a.include_last_offset) {
    bags = bags - 1;
    offsets = narrow(offsets, 0, 0, bags);
  }
  // For each element, the number of bags that have begun, minus one.
  const Tensor starts = index_add(zeros({n + 1}, DType::i64), 0, offsets, ones({bags}, DType::i64));
  return {narrow(cumsum(starts, 0), 0, 0, n) - 1, bags};
}

// The largest row of each bag, column by column; equal ones share the gradient. Padding goes to an
// extra bag after the others.
Tensor largest_rows(const Tensor& rows, const Tensor& padding, const Bags& bags) {
  const Dim all = padding.defined() ? bags.count + 1 : bags.count;
  Tensor place = bags.of;
  // In a trace the number of bags may be a symbol, so the last position is computed.
  if (padding.defined()) place = where(padding, arange_dim(all).max(), bags.of);
  const Tensor index = place.unsqueeze(1).expand(rows.shape());
  const Tensor y =
      scatter_reduce(zeros({all, rows.shape(1)}, rows.dtype()), 0, index, rows, "amax", false);
  return padding.defined() ? narrow(y, 0, 0, bags.count) : y;
}

}  // namespace

Tensor embedding_bag(Tensor x, const Tensor& weight, EmbeddingBagArguments a, SourceLocation loc) {
  return composed("embedding_bag", loc, x, [&] {
    check_bags(x, weight, a);
    const Bags bags = bags_of(x, a);
    const Dim n = x.shape().numel();
    x = x.reshape({n});
    std::optional<int64_t> skipped = a.padding_idx;
    if (skipped) {
      const int64_t count = weight.size(0);
      TD_CHECK(*skipped >= -count && *skipped < count, Index,
               "padding_idx {} is out of range for {} rows", *skipped, count);
      if (*skipped < 0) skipped = *skipped + count;
    }
    Tensor rows = embedding(x, weight, skipped);
    const Tensor padding = skipped ? x == *skipped : Tensor();
    if (a.mode == "max") return largest_rows(rows, padding, bags);
    Tensor counted = ones({n}, rows.dtype());
    if (skipped) {
      counted = logical_not(padding).to(rows.dtype());
      rows = rows * counted.unsqueeze(1);
    }
    if (a.per_sample_weights.defined())
      rows = rows * a.per_sample_weights.reshape({n, 1}).to(rows.dtype());
    const Tensor y = index_add(zeros({bags.count, rows.shape(1)}, rows.dtype()), 0, bags.of, rows);
    if (a.mode == "sum") return y;
    const Tensor count = index_add(zeros({bags.count}, rows.dtype()), 0, bags.of, counted);
    return y / clamp_min(count, 1.0).unsqueeze(1);
  });
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& linear_weight, const Tensor& target,
                            LinearCrossEntropyArguments a, SourceLocation loc) {
  return composed("linear_cross_entropy", loc, [&] {
    TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "x expects 1 or 2 dimensions, got {}",
             x.shape().to_string());
    TD_CHECK(linear_weight.dim() >= 2 && dims_equal(linear_weight.shape(-1), x.shape(-1)), Shape,
             "linear_weight is {}, x is {}: expected [classes, ..., in] and [..., in]",
             linear_weight.shape().to_string(), x.shape().to_string());
    TD_CHECK(linear_weight.dim() == 2 || x.dim() == 2, Shape,
             "linear_weight {} with several outputs per class expects a batch, x is {}",
             linear_weight.shape().to_string(), x.shape().to_string());
    const Dim in = x.shape(-1);
    Tensor bias = a.linear_bias;
    if (bias.defined()) bias = reshape(bias, Shape(-1));
    Tensor logits = linear(x, reshape(linear_weight, Shape(-1, in)), bias);
    if (linear_weight.dim() > 2) {
      Shape s(x.shape(0));
      for (int d = 0; d + 1 < linear_weight.dim(); ++d) s.push_back(linear_weight.shape(d));
      logits = reshape(logits, s);
    }
    return cross_entropy(logits, target,
                         {.weight = a.weight,
                          .ignore_index = a.ignore_index,
                          .reduction = a.reduction,
                          .label_smoothing = a.label_smoothing});
  });
}

Tensor conv_tbc(const Tensor& x, const Tensor& w, const Tensor& bias, int64_t pad,
                SourceLocation loc) {
  return composed("conv_tbc", loc, [&] {
    TD_CHECK(x.dim() == 3 && w.dim() == 3 && bias.dim() == 1, Shape,
             "x is {}, w is {}, bias is {}: expected [t, n, c], [k, c, out] and [out]",
             x.shape().to_string(), w.shape().to_string(), bias.shape().to_string());
    const Tensor y = conv1d(permute(x, {1, 2, 0}), permute(w, {2, 1, 0}), bias, {1}, {pad});
    return permute(y, {2, 0, 1});
  });
}

Tensor upsample(Tensor x, const InterpolateOptions& options, SourceLocation loc) {
  return detail::named("upsample", loc, [&] { return interpolate(std::move(x), options, loc); });
}
Tensor upsample_nearest(Tensor x, IntList size, ScaleFactor scale_factor, SourceLocation loc) {
  return detail::named("upsample_nearest", loc, [&] {
    InterpolateOptions o;
    o.size = size;
    o.scale_factor = scale_factor;
    return interpolate(std::move(x), o, loc);
  });
}
Tensor upsample_bilinear(Tensor x, IntList size, ScaleFactor scale_factor, SourceLocation loc) {
  return detail::named("upsample_bilinear", loc, [&] {
    InterpolateOptions o;
    o.size = size;
    o.scale_factor = scale_factor;
    o.mode = "bilinear";
    o.align_corners = true;
    return interpolate(std::move(x), o, loc);
  });
}

Tensor unfold(Tensor x, IntList kernel_size, IntList dilation, IntList padding, IntList stride,
              SourceLocation loc) {
  return detail::named("unfold", loc, [&] {
    return im2col(std::move(x), kernel_size, dilation, padding, stride, loc);
  });
}

}  // namespace tandem
