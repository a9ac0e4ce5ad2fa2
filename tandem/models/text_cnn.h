// SPDX-License-Identifier: Apache-2.0
// TextCNN: convolutions of several widths over word vectors, the largest of each over time
// (Kim 2014, "CNN-rand").
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct TextCNNOptions {
  int64_t vocabulary = 0, classes = 2;
  int64_t width = 300;                    ///< of a word vector
  int64_t filters = 100;                  ///< of each width
  std::vector<int64_t> windows{3, 4, 5};  ///< words
  double dropout = 0.5;
};

/// ids i64 [n, t], 0 for padding, t at least the widest window -> logits [n, classes].
struct TextCNN : nn::Module {
  explicit TextCNN(const TextCNNOptions& o)
      : words(o.vocabulary, o.width, {.padding_idx = 0}),
        drop(o.dropout),
        fc(o.filters * static_cast<int64_t>(o.windows.size()), o.classes) {
    for (int64_t w : o.windows) convs.emplace_back(o.width, o.filters, w);
    TD_REGISTER(words, convs, drop, fc);
  }
  Tensor forward(Tensor ids) {
    Tensor x = transpose(words(ids), 1, 2);  // [n, width, t]
    std::vector<Tensor> found;
    for (nn::Conv1d& conv : convs) found.push_back(amax(relu(conv(x)), {2}));
    return fc(drop(cat(found, 1)));
  }
  nn::Embedding words;
  std::vector<nn::Conv1d> convs;
  nn::Dropout drop;
  nn::Linear fc;
};

}  // namespace tandem::models
