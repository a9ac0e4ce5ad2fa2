// SPDX-License-Identifier: Apache-2.0
// Linear and Embedding.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
};

/// y = x W^T + b over the last dimension: x [..., in] -> [..., out]. weight [out, in], bias [out];
/// both start uniform in +-1/sqrt(in), as in PyTorch.
class TD_API Linear : public Module {
 public:
  Linear(Dim in_features, Dim out_features, LinearOptions options = {});
  Tensor forward(Tensor x);
  Param weight, bias;
  int64_t in_features, out_features;
};

struct EmbeddingOptions {
  /// Its row starts at zero and gets no gradient; negative: from the end.
  std::optional<int64_t> padding_idx = {};
  DType dtype = DType::f32;
};

/// Rows of weight [num_embeddings, embedding_dim] by index: x integers of any shape ->
/// [*x, embedding_dim]. weight starts standard normal.
class TD_API Embedding : public Module {
 public:
  Embedding(Dim num_embeddings, Dim embedding_dim, EmbeddingOptions options = {});
  Tensor forward(Tensor x);
  Param weight;
  EmbeddingOptions options;
};

namespace detail {
/// `m` as an Embedding; nullptr if it is not one.
TD_API Embedding* as_embedding(Module& m);
}  // namespace detail

}  // namespace tandem::nn
