// SPDX-License-Identifier: Apache-2.0
// TextEncoder: a small BERT (Devlin et al. 2019) for classes of texts, trained from random weights.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct TextEncoderOptions {
  int64_t vocabulary = 0, classes = 2;
  int64_t layers = 2, heads = 4, width = 128, hidden = 512;
  int64_t longest = 128;
  double dropout = 0.1;
  double word_dropout = 0;

  /// All but vocabulary and classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("layers", layers, {.doc = "blocks of attention and linear layers", .at_least = 1});
    v("heads", heads, {.doc = "heads of attention; they divide width", .at_least = 1});
    v("width", width, {.doc = "width of a word vector and of the blocks", .at_least = 1});
    v("hidden", hidden, {.doc = "width inside a block's two linear layers", .at_least = 1});
    v("longest", longest, {.doc = "words of the longest text, padding included", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
    v("word_dropout", word_dropout,
      {.doc = "share of the words left out in training (Iyyer et al. 2015)",
       .at_least = 0,
       .below = 1});
  }
};

/// ids i64 [n, t], 0 for padding, t at most `longest` -> logits [n, classes], from the mean over
/// the words of the last block's results.
struct TextEncoder : nn::Module {
  explicit TextEncoder(const TextEncoderOptions& o)
      : words(o.vocabulary, o.width, {.padding_idx = 0}),
        positions(o.longest, o.width),
        norm(o.width),
        drop(o.dropout),
        drop_words(o.word_dropout),
        encoder(nn::TransformerEncoderLayer(o.width, o.heads,
                                            {.dim_feedforward = o.hidden,
                                             .dropout = o.dropout,
                                             .activation = "gelu",
                                             .batch_first = true}),
                o.layers),
        fc(o.width, o.classes) {
    TD_REGISTER(words, positions, norm, drop, drop_words, encoder, fc);
    constexpr double kSpread = 0.1;  // words and positions begin alike
    const NoGradGuard no_grad;
    words.weight.assign_(words.weight.value() * kSpread);
    positions.weight.assign_(positions.weight.value() * kSpread);
  }
  Tensor forward(Tensor ids) {
    const Tensor is_word = ids != 0;
    Tensor x = words(ids);
    if (drop_words.p > 0) x = x * drop_words(ones({ids.shape(0), ids.shape(1), 1}));
    x = drop(norm(x + positions(arange_dim(ids.shape(1)))));
    x = encoder(x, {.src_key_padding_mask = ~is_word});
    const Tensor seen = is_word.to(x.dtype()).unsqueeze(2);
    return fc((x * seen).sum(IntList{1}) / clamp_min(seen.sum(IntList{1}), 1.0));
  }
  nn::Embedding words, positions;
  nn::LayerNorm norm;
  nn::Dropout drop, drop_words;
  nn::TransformerEncoder encoder;
  nn::Linear fc;
};

}  // namespace tandem::models
