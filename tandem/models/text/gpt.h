// SPDX-License-Identifier: Apache-2.0
// GPT: the decoder-only transformer of Radford et al. 2019 (GPT-2): learned positions, norms before
// attention and MLP, GELU, output weights tied to the embedding. Names are those of GPT-2's files.
#pragma once

#include <memory>

#include "tandem/nn/nn.h"

namespace tandem::models {

struct GPTOptions {
  int64_t vocabulary = 65, context = 64;
  int64_t layers = 4, heads = 4, width = 128;
  double dropout = 0;
  bool bias = false;

  /// All but vocabulary and context, which the data says.
  template <class V>
  void fields(V& v) {
    v("layers", layers, {.doc = "blocks", .at_least = 1});
    v("heads", heads, {.doc = "heads of attention; they divide width", .at_least = 1});
    v("width", width, {.doc = "width of the embedding", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
    v("bias", bias, {.doc = "biases in linear layers and norms"});
  }
};

/// ids i64 [n, t], t at most `context` -> logits [n, t, vocabulary].
class TD_API GPT : public nn::Module {
 public:
  explicit GPT(GPTOptions options = {});
  Tensor forward(Tensor ids);
  const GPTOptions& options() const { return o_; }

  struct TD_API Block : nn::Module {
    explicit Block(const GPTOptions& o);
    Tensor forward(Tensor x);
    nn::LayerNorm ln_1, ln_2;
    nn::Linear c_attn, c_proj, c_fc, mlp_proj;
    nn::Dropout drop;
    int64_t heads;
    double dropout;
  };
  nn::Embedding wte, wpe;
  nn::Dropout drop;
  std::vector<Block> h;
  nn::LayerNorm ln_f;

 private:
  GPTOptions o_;
};

}  // namespace tandem::models
