// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/linear.h"

#include "tandem/nn/init.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::nn {

Linear::Linear(Dim in, Dim out, LinearOptions o)
    : in_features(in.value()), out_features(out.value()) {
  TD_CHECK(in_features >= 0 && out_features >= 0, Value, "Linear expects sizes >= 0, got {} and {}",
           in_features, out_features);
  weight = Param(init::fan_in_uniform({out, in}, in_features, o.dtype));
  if (o.bias) bias = Param(init::fan_in_uniform({out}, in_features, o.dtype));
  TD_REGISTER(weight, bias);
}

Tensor Linear::forward(Tensor x) {
  return linear(std::move(x), weight, detail::value_or_none(bias));
}

namespace {
constexpr char kEmbedding = 0;
}
Embedding* detail::as_embedding(Module& m) {
  return m.state().kind == &kEmbedding ? static_cast<Embedding*>(&m) : nullptr;
}

Embedding::Embedding(Dim n, Dim d, EmbeddingOptions o) : options(o) {
  state().kind = &kEmbedding;
  weight = detail::embedding_weight("Embedding", n, d, options.padding_idx, o.dtype);
  TD_REGISTER(weight);
}

Tensor Embedding::forward(Tensor x) { return embedding(x, weight, options.padding_idx); }

}  // namespace tandem::nn
