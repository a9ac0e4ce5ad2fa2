// SPDX-License-Identifier: Apache-2.0
// CharRNN: letters in, the next letter out, by a plain, gated or long short-term memory net.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct CharRNNOptions {
  int64_t vocabulary = 65;
  std::string cell = "lstm";  ///< "rnn", "gru" or "lstm"
  int64_t layers = 1;
  int64_t embedding = 64, width = 256;
  double dropout = 0;  ///< between layers and before the output
};

/// ids i64 [n, t] -> logits [n, t, vocabulary]; the state before the first letter is zero. Throws
/// Value for another cell.
struct CharRNN : nn::Module {
  explicit CharRNN(const CharRNNOptions& o)
      : letters(o.vocabulary, o.embedding), drop(o.dropout), fc(o.width, o.vocabulary) {
    const double between = o.layers > 1 ? o.dropout : 0;
    if (o.cell == "rnn")
      rnn.emplace(o.embedding, o.width,
                  nn::RNNOptions{.num_layers = o.layers, .batch_first = true, .dropout = between});
    else if (o.cell == "gru")
      gru.emplace(o.embedding, o.width,
                  nn::GRUOptions{.num_layers = o.layers, .batch_first = true, .dropout = between});
    else if (o.cell == "lstm")
      lstm.emplace(
          o.embedding, o.width,
          nn::LSTMOptions{.num_layers = o.layers, .batch_first = true, .dropout = between});
    else
      TD_FAIL(Value, "CharRNN: the cell is rnn, gru or lstm, got '{}'", o.cell);
    TD_REGISTER(letters, rnn, gru, lstm, drop, fc);
  }
  Tensor forward(Tensor ids) {
    const Tensor x = letters(std::move(ids));
    return fc(drop(rnn ? (*rnn)(x).y : gru ? (*gru)(x).y : (*lstm)(x).y));
  }
  nn::Embedding letters;
  std::optional<nn::RNN> rnn;
  std::optional<nn::GRU> gru;
  std::optional<nn::LSTM> lstm;
  nn::Dropout drop;
  nn::Linear fc;
};

}  // namespace tandem::models
