// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/layers.h"

#include "tandem/nn/init.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/functional.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn {

Bilinear::Bilinear(Dim in1, Dim in2, Dim out, BilinearOptions o) {
  TD_CHECK(in1.value() > 0 && in2.value() > 0 && out.value() > 0, Value,
           "Bilinear expects sizes > 0, got {}, {} and {}", in1.value(), in2.value(), out.value());
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
  weight = detail::embedding_weight("EmbeddingBag", n, d, options.padding_idx, o.dtype);
  TD_REGISTER(weight);
}

Tensor EmbeddingBag::forward(Tensor x, Tensor offsets, Tensor per_sample_weights) {
  EmbeddingBagArguments a;
  a.offsets = std::move(offsets);
  a.mode = options.mode;
  a.per_sample_weights = std::move(per_sample_weights);
  a.include_last_offset = options.include_last_offset;
  a.padding_idx = options.padding_idx;
  return embedding_bag(std::move(x), weight, a);
}
Tensor EmbeddingBag::operator()(Tensor x, Tensor offsets, Tensor w, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(offsets), std::move(w)); });
}

RMSNorm::RMSNorm(IntList shape, RMSNormOptions o) : normalized_shape(shape), options(o) {
  TD_CHECK(shape.rank() > 0, Value, "RMSNorm expects at least one dimension");
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
