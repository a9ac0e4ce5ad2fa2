// SPDX-License-Identifier: Apache-2.0
// Graph layers over edge_index [2, e] (sources, targets; integers): node features x [n, in] -> [n,
// out]. Names, parameters and formulas are PyTorch Geometric's. The number of nodes is taken from
// x; edges may come in any order.
#pragma once

#include <functional>

#include "tandem/nn/container.h"
#include "tandem/nn/linear.h"

namespace tandem::nn {

/// How a node combines the messages of its incoming edges.
enum class Aggregation : uint8_t { sum, mean, max };

/// Base of layers whose nodes collect messages. `propagate` calls `message` with the features of
/// the sources and targets of all edges, [e, ...] each, and aggregates the results at the targets;
/// a node without edges gets zeros.
class TD_API MessagePassing : public Module {
 public:
  Aggregation aggregation;

 protected:
  explicit MessagePassing(Aggregation aggregation = Aggregation::sum) : aggregation(aggregation) {}
  using Message = std::function<Tensor(const Tensor& source, const Tensor& target)>;
  Tensor propagate(const Tensor& edge_index, const Tensor& x, const Message& message) const;
  /// Messages [e, ...] aggregated at their targets [n, ...].
  Tensor aggregate(const Tensor& messages, const Tensor& targets, Dim n) const;
  /// Throws Shape or DType unless x is [n, features] and edge_index [2, e] integers.
  void check(const Tensor& x, const Tensor& edge_index, int64_t features) const;
};

/// Softmax over the edges of each target: scores [e, ...], targets [e].
TD_API Tensor edge_softmax(const Tensor& scores, const Tensor& targets, Dim num_nodes,
                           SourceLocation loc = SourceLocation::here());
/// edge_index with an edge from each node to itself appended.
TD_API Tensor add_self_loops(const Tensor& edge_index, Dim num_nodes,
                             SourceLocation loc = SourceLocation::here());

struct GCNConvOptions {
  bool add_self_loops = true;
  bool normalize = true;
  bool bias = true;
  DType dtype = DType::f32;
};
/// D^-1/2 (A + I) D^-1/2 x W^T + b (Kipf and Welling 2017). Parameters lin.weight, bias.
class TD_API GCNConv : public MessagePassing {
 public:
  GCNConv(Dim in_channels, Dim out_channels, GCNConvOptions options = {});
  /// edge_weight [e], ones if undefined.
  Tensor forward(Tensor x, Tensor edge_index, Tensor edge_weight = {});
  Tensor operator()(Tensor x, Tensor edge_index, Tensor edge_weight = {},
                    SourceLocation loc = SourceLocation::here());
  Linear lin;
  Param bias;
  GCNConvOptions options;
};

struct SAGEConvOptions {
  Aggregation aggregation = Aggregation::mean;
  bool normalize = false;  ///< scale the rows of the result to length 1
  bool root_weight = true;
  bool bias = true;
  DType dtype = DType::f32;
};
/// lin_l(mean of neighbours) + lin_r(x) (Hamilton et al. 2017); lin_l has the bias.
class TD_API SAGEConv : public MessagePassing {
 public:
  SAGEConv(Dim in_channels, Dim out_channels, SAGEConvOptions options = {});
  Tensor forward(Tensor x, Tensor edge_index);
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here());
  Linear lin_l;
  std::optional<Linear> lin_r;
  SAGEConvOptions options;
};

struct GATConvOptions {
  int64_t heads = 1;
  bool concat = true;  ///< concatenate the heads, else average them
  double negative_slope = 0.2;
  double dropout = 0;  ///< of the attention weights, in training
  bool add_self_loops = true;
  bool bias = true;
  DType dtype = DType::f32;
};
/// Attention over neighbours (Velickovic et al. 2018): scores leaky_relu(a_src . Wx_s + a_dst .
/// Wx_t). Parameters lin.weight, att_src, att_dst [1, heads, out], bias.
class TD_API GATConv : public MessagePassing {
 public:
  GATConv(Dim in_channels, Dim out_channels, GATConvOptions options = {});
  Tensor forward(Tensor x, Tensor edge_index);
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here());
  Linear lin;
  Param att_src, att_dst, bias;
  int64_t out_channels;
  GATConvOptions options;
};
/// The dynamic variant (Brody et al. 2022): scores a . leaky_relu(W_l x_s + W_r x_t). Parameters
/// lin_l, lin_r (with biases), att [1, heads, out], bias.
class TD_API GATv2Conv : public MessagePassing {
 public:
  GATv2Conv(Dim in_channels, Dim out_channels, GATConvOptions options = {});
  Tensor forward(Tensor x, Tensor edge_index);
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here());
  Linear lin_l, lin_r;
  Param att, bias;
  int64_t out_channels;
  GATConvOptions options;
};

struct GINConvOptions {
  double eps = 0;
  bool train_eps = false;
  DType dtype = DType::f32;
};
/// nn((1 + eps) x + sum of neighbours) (Xu et al. 2019).
class TD_API GINConv : public MessagePassing {
 public:
  explicit GINConv(AnyModule nn, GINConvOptions options = {});
  Tensor forward(Tensor x, Tensor edge_index);
  Tensor operator()(Tensor x, Tensor edge_index, SourceLocation loc = SourceLocation::here());
  AnyModule nn;
  Param eps;          ///< with train_eps
  Buffer eps_buffer;  ///< without
};

/// Pools the nodes of each graph into one row: x [n, f], batch [n] (the graph of each node) ->
/// [graphs, f]. Without num_graphs, batch is read (not in a trace). Empty graphs give zeros.
TD_API Tensor global_add_pool(const Tensor& x, const Tensor& batch, int64_t num_graphs = -1,
                              SourceLocation loc = SourceLocation::here());
TD_API Tensor global_mean_pool(const Tensor& x, const Tensor& batch, int64_t num_graphs = -1,
                               SourceLocation loc = SourceLocation::here());
TD_API Tensor global_max_pool(const Tensor& x, const Tensor& batch, int64_t num_graphs = -1,
                              SourceLocation loc = SourceLocation::here());

}  // namespace tandem::nn
