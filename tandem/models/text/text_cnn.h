// SPDX-License-Identifier: Apache-2.0
// TextCNN: convolutions of several widths over word vectors, max-pooled over time (Kim 2014,
// "CNN-rand").
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct TextCNNOptions {
  int64_t vocabulary = 0, classes = 2;
  int64_t width = 300;
  int64_t filters = 100;
  std::vector<int64_t> windows{3, 4, 5};
  double dropout = 0.5;
  double word_dropout = 0;
  double word_spread = 1;
  int64_t odds = 0;  ///< further numbers of a text that the last layer sees

  /// All but vocabulary, classes and odds, which the data says.
  template <class V>
  void fields(V& v) {
    v("width", width, {.doc = "width of a word vector", .at_least = 1});
    v("filters", filters, {.doc = "filters of each window", .at_least = 1});
    v("windows", windows, {.doc = "widths of the convolutions in words", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
    v("word_dropout", word_dropout,
      {.doc = "share of the words left out in training (Iyyer et al. 2015)",
       .at_least = 0,
       .below = 1});
    v("word_spread", word_spread,
      {.doc = "standard deviation of the word vectors at first", .at_least = 0});
  }
};

/// ids i64 [n, t], 0 for padding, t at least the widest window, and f32 [n, odds] if odds > 0 ->
/// logits [n, classes].
struct TextCNN : nn::Module {
  explicit TextCNN(const TextCNNOptions& o)
      : words(o.vocabulary, o.width, {.padding_idx = 0}),
        drop(o.dropout),
        drop_words(o.word_dropout),
        fc(o.filters * static_cast<int64_t>(o.windows.size()) + o.odds, o.classes) {
    for (int64_t w : o.windows) convs.emplace_back(o.width, o.filters, w);
    TD_REGISTER(words, convs, drop, drop_words, fc);
    if (o.word_spread != 1) {
      NoGradGuard no_grad;
      words.weight.assign_(words.weight.value() * o.word_spread);
    }
  }
  Tensor forward(Tensor ids, Tensor odds = {}) {
    Tensor x = transpose(words(ids), 1, 2);  // [n, width, t]
    if (drop_words.p > 0) x = x * drop_words(ones({x.shape(0), 1, x.shape(2)}));
    std::vector<Tensor> found;
    for (nn::Conv1d& conv : convs) found.push_back(amax(relu(conv(x)), {2}));
    Tensor text = drop(cat(found, 1));
    return fc(odds.defined() ? cat({text, odds}, 1) : text);
  }
  Tensor operator()(Tensor ids, Tensor odds = {}, SourceLocation loc = SourceLocation::here()) {
    return scoped(loc, [&] { return forward(std::move(ids), std::move(odds)); });
  }
  nn::Embedding words;
  std::vector<nn::Conv1d> convs;
  nn::Dropout drop, drop_words;
  nn::Linear fc;
};

}  // namespace tandem::models
