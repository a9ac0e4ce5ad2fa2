// SPDX-License-Identifier: Apache-2.0
// CharRNN: predicts the next character with a plain RNN, a GRU or an LSTM.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct CharRNNOptions {
  int64_t vocabulary = 65;
  std::string cell = "lstm";
  int64_t layers = 1;
  int64_t embedding = 64, width = 256;
  double dropout = 0;

  /// All but the vocabulary, which the data says.
  template <class V>
  void fields(V& v) {
    v("cell", cell, {.doc = "kind of recurrent cell", .one_of = "rnn gru lstm"});
    v("layers", layers, {.doc = "layers of cells", .at_least = 1});
    v("embedding", embedding, {.doc = "width of a character's vector", .at_least = 1});
    v("width", width, {.doc = "width of the state", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share dropped between layers and before the output", .at_least = 0, .below = 1});
  }
};

/// ids i64 [n, t] -> logits [n, t, vocabulary]; the state before the first character is zero.
/// Throws Value for an unknown cell.
struct CharRNN : nn::Module {
  explicit CharRNN(const CharRNNOptions& o)
      : embedding(o.vocabulary, o.embedding), drop(o.dropout), fc(o.width, o.vocabulary) {
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
      TD_FAIL(Value, "CharRNN: the cell must be rnn, gru or lstm, got '{}'", o.cell);
    TD_REGISTER(embedding, rnn, gru, lstm, drop, fc);
  }
  Tensor forward(Tensor ids) {
    const Tensor x = embedding(std::move(ids));
    return fc(drop(rnn ? (*rnn)(x).y : gru ? (*gru)(x).y : (*lstm)(x).y));
  }
  nn::Embedding embedding;
  std::optional<nn::RNN> rnn;
  std::optional<nn::GRU> gru;
  std::optional<nn::LSTM> lstm;
  nn::Dropout drop;
  nn::Linear fc;
};

}  // namespace tandem::models
