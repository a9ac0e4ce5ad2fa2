// SPDX-License-Identifier: Apache-2.0
// Bilinear, EmbeddingBag, RMSNorm and the distance layers.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/nn/one_size.h"

namespace tandem::nn {

struct BilinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
};
/// y_k = x1 W_k x2 + b_k: x1 [..., in1], x2 [..., in2] -> [..., out]. weight [out, in1, in2], both
/// uniform in +-1/sqrt(in1).
class TD_API Bilinear : public Module {
 public:
  Bilinear(Dim in1_features, Dim in2_features, Dim out_features, BilinearOptions options = {});
  Tensor forward(Tensor x1, Tensor x2);
  Tensor operator()(Tensor x1, Tensor x2, SourceLocation loc = SourceLocation::here());
  Param weight, bias;
};

struct EmbeddingBagOptions {
  std::string mode = "mean";  ///< or "sum", "max"
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx = {};  ///< row that does not count; negative: from the end
  DType dtype = DType::f32;
};
/// Sums, means or maxima of rows of weight [num_embeddings, embedding_dim] per bag: x integers
/// [bags, length], or [n] with offsets [bags] (where each bag begins). per_sample_weights of x's
/// shape for mode "sum". An empty bag gives zeros.
class TD_API EmbeddingBag : public Module {
 public:
  EmbeddingBag(Dim num_embeddings, Dim embedding_dim, EmbeddingBagOptions options = {});
  Tensor forward(Tensor x) { return forward(std::move(x), {}); }
  Tensor forward(Tensor x, Tensor offsets, Tensor per_sample_weights = {});
  using Module::operator();
  Tensor operator()(Tensor x, Tensor offsets, Tensor per_sample_weights = {},
                    SourceLocation loc = SourceLocation::here());
  Param weight;
  EmbeddingBagOptions options;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< none: the epsilon of x's dtype
  bool elementwise_affine = true;
  DType dtype = DType::f32;
};
/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, given by normalized_shape.
class TD_API RMSNorm : public Module {
 public:
  explicit RMSNorm(IntList normalized_shape, RMSNormOptions options = {});
  TD_LIST_OF_ONE(RMSNorm, RMSNormOptions);
  Tensor forward(Tensor x);
  Param weight;
  IntList normalized_shape;
  RMSNormOptions options;
};

/// x1 . x2 / (|x1| |x2|) along dim.
class TD_API CosineSimilarity : public Module {
 public:
  explicit CosineSimilarity(int64_t dim = 1, double eps = 1e-8);
  Tensor forward(Tensor x1, Tensor x2);
  Tensor operator()(Tensor x1, Tensor x2, SourceLocation loc = SourceLocation::here());
  int64_t dim;
  double eps;
};
/// ||x1 - x2 + eps||_p along the last dimension.
class TD_API PairwiseDistance : public Module {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false);
  Tensor forward(Tensor x1, Tensor x2);
  Tensor operator()(Tensor x1, Tensor x2, SourceLocation loc = SourceLocation::here());
  double p, eps;
  bool keepdim;
};

}  // namespace tandem::nn
