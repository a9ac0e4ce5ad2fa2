// SPDX-License-Identifier: Apache-2.0
// A tree-LSTM over random trees, for benchmarks and tests of functions that branch on values.
#pragma once

#include <tandem/tandem.h>

#include <memory>
#include <random>

namespace tandem::bench {

struct Tree {
  int64_t word = 0;
  std::unique_ptr<Tree> left, right;
};
/// A binary tree with `leaves` leaves, each a word below `words`.
inline std::unique_ptr<Tree> random_tree(std::mt19937& rng, int leaves, unsigned words) {
  auto t = std::make_unique<Tree>();
  t->word = static_cast<int64_t>(rng() % words);
  if (leaves < 2) return t;
  const int n = 1 + static_cast<int>(rng() % static_cast<unsigned>(leaves - 1));
  t->left = random_tree(rng, n, words);
  t->right = random_tree(rng, leaves - n, words);
  return t;
}

struct TreeLstm : nn::Module {
  nn::Embedding words;
  nn::Linear gates, out;
  TreeLstm(int64_t vocabulary, int64_t width, int64_t classes)
      : words(vocabulary, width), gates(2 * width, 5 * width), out(width, classes) {
    TD_REGISTER(words, gates, out);
  }
  /// Hidden value and cell of a tree.
  std::pair<Tensor, Tensor> node(const Tree& t) {
    if (!t.left) {
      Tensor e = words(tensor({t.word}, DType::i64));
      return {tanh(e), e};
    }
    auto [lh, lc] = node(*t.left);
    auto [rh, rc] = node(*t.right);
    std::vector<Tensor> g = chunk(gates(cat({lh, rh}, 1)), 5, 1);
    Tensor c = sigmoid(g[0]) * tanh(g[1]) + sigmoid(g[2]) * lc + sigmoid(g[3]) * rc;
    return {sigmoid(g[4]) * tanh(c), c};
  }
  Tensor loss(const Tree& t, int label) {
    return cross_entropy(out(node(t).first), tensor({label}, DType::i64));
  }
};

}  // namespace tandem::bench
