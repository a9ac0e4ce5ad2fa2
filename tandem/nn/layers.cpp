// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/layers.h"

#include <algorithm>
#include <limits>

#include "tandem/nn/init.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {

Bilinear::Bilinear(Dim in1, Dim in2, Dim out, BilinearOptions o) {
  TD_CHECK(in1.value() > 0 && in2.value() > 0 && out.value() > 0, Value,
           "Bilinear wants sizes > 0, got {}, {} and {}", in1.value(), in2.value(), out.value());
  weight = Param(init::fan_in_uniform({out, in1, in2}, in1.value(), o.dtype));
  if (o.bias) bias = Param(init::fan_in_uniform({out}, in1.value(), o.dtype));
  TD_REGISTER(weight, bias);
}
Tensor Bilinear::forward(Tensor x1, Tensor x2) {
  return bilinear(std::move(x1), std::move(x2), weight, detail::value_or_none(bias));
}
Tensor Bilinear::operator()(Tensor x1, Tensor x2, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x1), std::move(x2)); });
}

EmbeddingBag::EmbeddingBag(Dim n, Dim d, EmbeddingBagOptions o) : options(o) {
  TD_CHECK(o.mode == "sum" || o.mode == "mean" || o.mode == "max", Value,
           "EmbeddingBag knows the modes sum, mean and max, got \"{}\"", o.mode);
  weight = detail::embedding_weight("EmbeddingBag", n, d, o.padding_idx, o.dtype);
  TD_REGISTER(weight);
}

// The largest row of each bag, column by column; equal ones share the gradient. Padding goes to an
// extra bag after the others.
Tensor EmbeddingBag::bag_max(const Tensor& rows, const Tensor& x, const Tensor& bag,
                             Dim bags) const {
  const bool padded = options.padding_idx >= 0;
  const Dim all = padded ? bags + 1 : bags;
  Tensor place = bag;
  if (padded) {
    // In a trace the number of bags may be a symbol, so the last position is computed.
    const Tensor last = arange_dim(all).max();
    place = where(x == options.padding_idx, last, bag);
  }
  const Tensor index = place.unsqueeze(1).expand(rows.shape());
  Tensor y =
      scatter_reduce(zeros({all, rows.shape(1)}, rows.dtype()), 0, index, rows, "amax", false);
  return padded ? narrow(y, 0, 0, bags) : y;
}

Tensor EmbeddingBag::forward(Tensor x, Tensor offsets, Tensor w) {
  TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "EmbeddingBag wants x [bags, n] or [n], is {}",
           x.shape().to_string());
  TD_CHECK((x.dim() == 1) == offsets.defined(), Shape,
           "EmbeddingBag wants offsets for x of 1 dimension and none for 2, x is {}",
           x.shape().to_string());
  TD_CHECK(!w.defined() || options.mode == "sum", Value,
           "per_sample_weights are for mode \"sum\", the mode is \"{}\"", options.mode);
  TD_CHECK(!w.defined() || w.shape() == x.shape(), Shape,
           "per_sample_weights are {}, x is {}: they must have one shape",
           w.defined() ? w.shape().to_string() : "", x.shape().to_string());
  Dim n = x.shape().numel(), bags;
  Tensor bag;
  if (x.dim() == 2) {
    bags = x.shape(0);
    bag = arange_dim(bags).reshape({bags, 1}).expand(x.shape()).reshape({n});
  } else {
    TD_CHECK(offsets.dim() == 1, Shape, "offsets want 1 dimension, are {}",
             offsets.shape().to_string());
    bags = offsets.shape(0);
    if (options.include_last_offset) {
      bags = bags - 1;
      offsets = narrow(offsets, 0, 0, bags);
    }
    // For each element, the number of bags that have begun, minus one.
    Tensor starts = index_add(zeros({n + 1}, DType::i64), 0, offsets, ones({bags}, DType::i64));
    bag = narrow(cumsum(starts, 0), 0, 0, n) - 1;
  }
  x = x.reshape({n});
  std::optional<int64_t> padding;
  if (options.padding_idx >= 0) padding = options.padding_idx;
  Tensor rows = embedding(x, weight, padding);
  if (options.mode == "max") return bag_max(rows, x, bag, bags);
  Tensor counted;
  if (padding) {
    counted = (x != *padding).to(rows.dtype());
    rows = rows * counted.unsqueeze(1);
  }
  if (w.defined()) rows = rows * w.reshape({n, 1}).to(rows.dtype());
  Tensor y = index_add(zeros({bags, rows.shape(1)}, rows.dtype()), 0, bag, rows);
  if (options.mode == "sum") return y;
  if (!counted.defined()) counted = ones({n}, rows.dtype());
  Tensor count = index_add(zeros({bags}, rows.dtype()), 0, bag, counted);
  return y / clamp_min(count, 1.0).unsqueeze(1);
}
Tensor EmbeddingBag::operator()(Tensor x, Tensor offsets, Tensor w, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(offsets), std::move(w)); });
}

RMSNorm::RMSNorm(IntList shape, RMSNormOptions o) : normalized_shape(shape), options(o) {
  TD_CHECK(shape.rank() > 0, Value, "RMSNorm wants at least one dimension");
  if (o.elementwise_affine) weight = Param(ones(shape, o.dtype));
  TD_REGISTER(weight);
}
Tensor RMSNorm::forward(Tensor x) {
  return rms_norm(std::move(x), normalized_shape, detail::value_or_none(weight), options.eps);
}

CosineSimilarity::CosineSimilarity(int64_t dim, double eps) : dim(dim), eps(eps) {
  this->register_members(this, "");
}
Tensor CosineSimilarity::forward(Tensor a, Tensor b) {
  return cosine_similarity(std::move(a), std::move(b), dim, eps);
}
Tensor CosineSimilarity::operator()(Tensor a, Tensor b, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(a), std::move(b)); });
}

PairwiseDistance::PairwiseDistance(double p, double eps, bool keepdim)
    : p(p), eps(eps), keepdim(keepdim) {
  this->register_members(this, "");
}
Tensor PairwiseDistance::forward(Tensor a, Tensor b) {
  return pairwise_distance(std::move(a), std::move(b), p, eps, keepdim);
}
Tensor PairwiseDistance::operator()(Tensor a, Tensor b, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(a), std::move(b)); });
}

}  // namespace tandem::nn
