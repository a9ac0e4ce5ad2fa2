// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/gnn.h"

#include "tandem/nn/init.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

// The shape of m with n rows.
Shape rows_of(const Tensor& m, Dim n) {
  Shape s = m.shape();
  s[0] = n;
  return s;
}

Tensor counts(const Tensor& targets, Dim n, DType dtype) {
  const DeviceGuard there(targets.device());
  return index_add(zeros({n}, dtype), 0, targets, ones({targets.shape(0)}, dtype));
}

Tensor sum_at(const Tensor& m, const Tensor& at, Dim n) {
  const DeviceGuard there(m.device());
  return index_add(zeros(rows_of(m, n), m.dtype()), 0, at, m);
}

Tensor mean_at(const Tensor& m, const Tensor& at, Dim n) {
  Shape s{n};
  for (int i = 1; i < m.dim(); ++i) s.push_back(1);
  return sum_at(m, at, n) / clamp_min(counts(at, n, m.dtype()), 1.0).reshape(s);
}

// Positions that receive nothing stay zero.
Tensor max_at(const Tensor& m, const Tensor& at, Dim n) {
  const DeviceGuard there(m.device());
  return index_reduce(zeros(rows_of(m, n), m.dtype()), 0, at, m, "amax", false);
}

}  // namespace

void MessagePassing::check(const Tensor& x, const Tensor& edges, int64_t features) const {
  TD_CHECK(x.dim() == 2 && (features < 0 || dims_equal(x.shape(1), features)), Shape,
           "{} expects x [nodes, {}], got {}", type(),
           features < 0 ? std::string("features") : std::to_string(features),
           x.shape().to_string());
  TD_CHECK(edges.dim() == 2 && dims_equal(edges.shape(0), 2), Shape,
           "edge_index expects [2, edges], got {}", edges.shape().to_string());
  TD_CHECK(edges.dtype() == DType::i64 || edges.dtype() == DType::i32, DType,
           "edge_index expects int64 or int32, got {}\nCast it with .to(int64).",
           to_string(edges.dtype()));
}

Tensor MessagePassing::aggregate(const Tensor& messages, const Tensor& targets, Dim n) const {
  switch (aggregation) {
    case Aggregation::sum:
      return sum_at(messages, targets, n);
    case Aggregation::mean:
      return mean_at(messages, targets, n);
    case Aggregation::max:
      break;
  }
  return max_at(messages, targets, n);
}

Tensor MessagePassing::propagate(const Tensor& edges, const Tensor& x,
                                 const Message& message) const {
  Tensor from = select(edges, 0, 0), to = select(edges, 0, 1);
  Tensor m = message(index_select(x, 0, from), index_select(x, 0, to));
  return aggregate(m, to, x.shape(0));
}

Tensor edge_softmax(const Tensor& scores, const Tensor& targets, Dim n, SourceLocation loc) {
  Tensor top;
  {
    NoGradGuard no_grad;  // the shift does not change the result
    top = index_select(max_at(scores.detach(), targets, n), 0, targets, loc);
  }
  Tensor e = exp(scores - top, loc);
  Tensor total = index_select(sum_at(e, targets, n), 0, targets, loc);
  return e / (total + 1e-16);
}

Tensor add_self_loops(const Tensor& edges, Dim n, SourceLocation loc) {
  Tensor own = arange_dim(n, loc).to(edges.dtype(), loc);
  return cat({edges, stack({own, own}, 0, loc)}, 1, loc);
}

// ---- GCN

GCNConv::GCNConv(Dim in, Dim out, GCNConvOptions o)
    : lin(in, out, {.bias = false, .dtype = o.dtype}), options(o) {
  lin.weight.assign_(init::xavier_uniform(lin.weight.shape(), 1, o.dtype));
  if (o.bias) bias = Param(zeros({out}, o.dtype));
  TD_REGISTER(lin, bias);
}

Tensor GCNConv::forward(Tensor x, Tensor edges, Tensor w) {
  check(x, edges, lin.in_features);
  const DeviceGuard there(x.device());
  Dim n = x.shape(0);
  TD_CHECK(!w.defined() || (w.dim() == 1 && dims_equal(w.shape(0), edges.shape(1))), Shape,
           "edge_weight expects [{}], got {}", edges.shape(1).to_string(),
           w.defined() ? w.shape().to_string() : "");
  if (!w.defined()) w = ones({edges.shape(1)}, x.dtype());
  if (options.add_self_loops) {
    edges = nn::add_self_loops(edges, n);
    w = cat({w, ones({n}, w.dtype())}, 0);
  }
  Tensor from = select(edges, 0, 0), to = select(edges, 0, 1);
  if (options.normalize) {
    Tensor degree = sum_at(w, to, n);
    Tensor inverse = where(degree > 0.0, rsqrt(clamp_min(degree, 1e-30)), 0.0);
    w = index_select(inverse, 0, from) * w * index_select(inverse, 0, to);
  }
  Tensor y = aggregate(index_select(lin(x), 0, from) * w.unsqueeze(1), to, n);
  return bias.defined() ? y + bias.value() : y;
}
Tensor GCNConv::operator()(Tensor x, Tensor edges, Tensor w, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(edges), std::move(w)); });
}

// ---- SAGE

SAGEConv::SAGEConv(Dim in, Dim out, SAGEConvOptions o)
    : MessagePassing(o.aggregation),
      lin_l(in, out, {.bias = o.bias, .dtype = o.dtype}),
      options(o) {
  if (o.root_weight) lin_r.emplace(in, out, LinearOptions{.bias = false, .dtype = o.dtype});
  TD_REGISTER(lin_l, lin_r);
}

Tensor SAGEConv::forward(Tensor x, Tensor edges) {
  check(x, edges, lin_l.in_features);
  Tensor y = lin_l(propagate(edges, x, [](const Tensor& s, const Tensor&) { return s; }));
  if (lin_r) y = y + (*lin_r)(x);
  return options.normalize ? normalize(y, 2, 1) : y;
}
Tensor SAGEConv::operator()(Tensor x, Tensor edges, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(edges)); });
}

// ---- GAT

namespace {

// alpha [e, heads], features of the sources [e, heads, out] -> [n, heads * out], or their mean.
Tensor attend(const Tensor& features, Tensor alpha, const Tensor& to, Dim n,
              const GATConvOptions& o, int64_t out, bool training, const Param& bias) {
  if (training && o.dropout > 0) alpha = dropout(alpha, o.dropout, true);
  Tensor y = sum_at(features * alpha.unsqueeze(-1), to, n);
  y = o.concat ? y.reshape({n, o.heads * out}) : y.mean({1});
  return bias.defined() ? y + bias.value() : y;
}

void check_gat(const GATConvOptions& o, Dim out) {
  TD_CHECK(o.heads > 0 && out.value() > 0, Value,
           "GATConv expects heads and channels > 0, got {} and {}", o.heads, out.value());
  TD_CHECK(o.dropout >= 0 && o.dropout <= 1, Value, "dropout expects a probability in 0..1, got {}",
           o.dropout);
}

Dim bias_size(const GATConvOptions& o, Dim out) { return o.concat ? out * o.heads : out; }

}  // namespace

GATConv::GATConv(Dim in, Dim out, GATConvOptions o)
    : lin(in, out * (o.heads > 0 ? o.heads : 1), {.bias = false, .dtype = o.dtype}),
      out_channels(out.value()),
      options(o) {
  check_gat(o, out);
  lin.weight.assign_(init::xavier_uniform(lin.weight.shape(), 1, o.dtype));
  att_src = Param(init::xavier_uniform({1, o.heads, out}, 1, o.dtype));
  att_dst = Param(init::xavier_uniform({1, o.heads, out}, 1, o.dtype));
  if (o.bias) bias = Param(zeros({bias_size(o, out)}, o.dtype));
  TD_REGISTER(att_src, att_dst, bias, lin);
}

Tensor GATConv::forward(Tensor x, Tensor edges) {
  check(x, edges, lin.in_features);
  Dim n = x.shape(0);
  if (options.add_self_loops) edges = nn::add_self_loops(edges, n);
  Tensor from = select(edges, 0, 0), to = select(edges, 0, 1);
  Tensor h = lin(x).reshape({n, options.heads, out_channels});
  Tensor source = (h * att_src.value()).sum({-1}), target = (h * att_dst.value()).sum({-1});
  Tensor alpha = leaky_relu(index_select(source, 0, from) + index_select(target, 0, to),
                            options.negative_slope);
  return attend(index_select(h, 0, from), edge_softmax(alpha, to, n), to, n, options, out_channels,
                is_training(), bias);
}
Tensor GATConv::operator()(Tensor x, Tensor edges, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(edges)); });
}

GATv2Conv::GATv2Conv(Dim in, Dim out, GATConvOptions o)
    : lin_l(in, out * (o.heads > 0 ? o.heads : 1), {.bias = o.bias, .dtype = o.dtype}),
      lin_r(in, out * (o.heads > 0 ? o.heads : 1), {.bias = o.bias, .dtype = o.dtype}),
      out_channels(out.value()),
      options(o) {
  check_gat(o, out);
  for (Linear* l : {&lin_l, &lin_r}) {
    l->weight.assign_(init::xavier_uniform(l->weight.shape(), 1, o.dtype));
    if (o.bias) l->bias.assign_(0.0);
  }
  att = Param(init::xavier_uniform({1, o.heads, out}, 1, o.dtype));
  if (o.bias) bias = Param(zeros({bias_size(o, out)}, o.dtype));
  TD_REGISTER(att, bias, lin_l, lin_r);
}

Tensor GATv2Conv::forward(Tensor x, Tensor edges) {
  check(x, edges, lin_l.in_features);
  Dim n = x.shape(0);
  if (options.add_self_loops) edges = nn::add_self_loops(edges, n);
  Tensor from = select(edges, 0, 0), to = select(edges, 0, 1);
  Shape heads{n, options.heads, out_channels};
  Tensor source = index_select(lin_l(x).reshape(heads), 0, from);
  Tensor target = index_select(lin_r(x).reshape(heads), 0, to);
  Tensor alpha = (leaky_relu(source + target, options.negative_slope) * att.value()).sum({-1});
  return attend(source, edge_softmax(alpha, to, n), to, n, options, out_channels, is_training(),
                bias);
}
Tensor GATv2Conv::operator()(Tensor x, Tensor edges, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(edges)); });
}

// ---- GIN

GINConv::GINConv(AnyModule m, GINConvOptions o) : nn(std::move(m)) {
  TD_CHECK(nn.module().state().forward, Value,
           "GINConv expects a module with `Tensor forward(Tensor)`");
  if (o.train_eps)
    eps = Param(full({1}, o.eps, o.dtype));
  else
    eps_buffer = Buffer(full({1}, o.eps, o.dtype));
  TD_REGISTER(nn, eps, eps_buffer);
  state().members.back().name = "eps";  // only one of the two exists
}

Tensor GINConv::forward(Tensor x, Tensor edges) {
  check(x, edges, -1);
  Tensor near = propagate(edges, x, [](const Tensor& s, const Tensor&) { return s; });
  Tensor own = eps.defined() ? eps.value() : eps_buffer.value();
  return nn(near + (own + 1.0) * x);
}
Tensor GINConv::operator()(Tensor x, Tensor edges, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(edges)); });
}

// ---- graphs

namespace {
Dim graphs(const Tensor& x, const Tensor& batch, int64_t n) {
  TD_CHECK(x.dim() >= 1 && batch.dim() == 1 && dims_equal(x.shape(0), batch.shape(0)), Shape,
           "x is {}, batch {}: expected one graph index per node", x.shape().to_string(),
           batch.shape().to_string());
  if (n >= 0) return n;
  return batch.numel() == 0 ? 0 : batch.amax().to(DType::i64).item<int64_t>() + 1;
}
template <class F>
Tensor pooled(const char* name, const Tensor& x, const Tensor& batch, int64_t n, SourceLocation loc,
              F&& f) {
  try {
    return f(x, batch, graphs(x, batch, n));
  } catch (const Error& e) {
    if (!e.op().empty() && e.loc().file) throw;
    throw with_place(e, name, loc);
  }
}
}  // namespace

Tensor global_add_pool(const Tensor& x, const Tensor& batch, int64_t n, SourceLocation loc) {
  return pooled("global_add_pool", x, batch, n, loc, sum_at);
}
Tensor global_mean_pool(const Tensor& x, const Tensor& batch, int64_t n, SourceLocation loc) {
  return pooled("global_mean_pool", x, batch, n, loc, mean_at);
}
Tensor global_max_pool(const Tensor& x, const Tensor& batch, int64_t n, SourceLocation loc) {
  return pooled("global_max_pool", x, batch, n, loc, max_at);
}

}  // namespace tandem::nn
