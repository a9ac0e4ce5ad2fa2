// SPDX-License-Identifier: Apache-2.0
// GCN and GAT: the two-layer node classifiers of Kipf and Welling (2017) and Velickovic et al.
// (2018).
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct GCNOptions {
  int64_t features = 1433, classes = 7;
  int64_t hidden = 16;
  double dropout = 0.5;

  /// All but features and classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("hidden", hidden, {.doc = "width of the hidden layer", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
  }
};

/// x [n, features], edge_index [2, e] -> logits [n, classes]; 23,063 parameters for Cora.
struct GCN : nn::Module {
  explicit GCN(const GCNOptions& o)
      : conv1(o.features, o.hidden), conv2(o.hidden, o.classes), drop(o.dropout) {
    TD_REGISTER(conv1, conv2, drop);
  }
  Tensor forward(Tensor x, Tensor edge_index) {
    x = relu(conv1(drop(std::move(x)), edge_index));
    return conv2(drop(std::move(x)), std::move(edge_index));
  }
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here()) {
    return scoped(loc, [&] { return forward(std::move(x), std::move(edge_index)); });
  }
  nn::GCNConv conv1, conv2;
  nn::Dropout drop;
};

struct GATOptions {
  int64_t features = 1433, classes = 7;
  int64_t hidden = 8;
  int64_t heads = 8;
  double dropout = 0.6;

  /// All but features and classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("hidden", hidden, {.doc = "width of each head", .at_least = 1});
    v("heads", heads, {.doc = "heads of attention", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of features and of attention that training drops", .at_least = 0, .below = 1});
  }
};

/// x [n, features], edge_index [2, e] -> logits [n, classes]; 92,373 parameters for Cora.
struct GAT : nn::Module {
  explicit GAT(const GATOptions& o)
      : conv1(o.features, o.hidden, {.heads = o.heads, .dropout = o.dropout}),
        conv2(o.hidden * o.heads, o.classes, {.heads = 1, .concat = false, .dropout = o.dropout}),
        drop(o.dropout) {
    TD_REGISTER(conv1, conv2, drop);
  }
  Tensor forward(Tensor x, Tensor edge_index) {
    x = elu(conv1(drop(std::move(x)), edge_index));
    return conv2(drop(std::move(x)), std::move(edge_index));
  }
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here()) {
    return scoped(loc, [&] { return forward(std::move(x), std::move(edge_index)); });
  }
  nn::GATConv conv1, conv2;
  nn::Dropout drop;
};

}  // namespace tandem::models
