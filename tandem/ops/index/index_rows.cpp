// SPDX-License-Identifier: Apache-2.0
// The rows of indexing: shape rules, derivatives, batch rules. Their loops are in
// index_reference.cpp, gather_reference.cpp, sort_reference.cpp and count_reference.cpp.
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

void check_index_dtype(const InferCall& c, int i) {
  TD_CHECK(detail::is_index_dtype(c.in[i].dtype), DType,
           "an index must be int64 or int32, got {}\nConvert it with .to(int64).",
           to_string(c.in[i].dtype));
}
void check_same_dtype(const InferCall& c, int i, const char* name) {
  TD_CHECK(c.in[i].dtype == c.in[0].dtype, DType, "x is {}, {} is {}\nConvert one of them.",
           to_string(c.in[0].dtype), name, to_string(c.in[i].dtype));
}
// ---- index, index_put, index_backward
// x's shape with the indexed dims replaced by the broadcast shape of the index tensors, which are
// the inputs from `first` on.
Shape indexed_shape(const InferCall& c, const Shape& x, int first) {
  const IndexAttrs& a = c.get_attrs<IndexAttrs>();
  const int n = c.n_in() - first;
  TD_CHECK(n > 0, Value, "expected at least one index tensor");
  const int d = normalize_dim(a.dim, x.rank());
  TD_CHECK(d + n <= x.rank(), Shape, "{} index tensors from dimension {} are too many for x {}", n,
           d, x.to_string());
  Shape common;
  for (int i = first; i < c.n_in(); ++i) {
    check_index_dtype(c, i);
    common = broadcast_shapes(common, c.in[i].shape);
  }
  Shape out;
  for (int i = 0; i < d; ++i) out.push_back(x[i]);
  for (Dim s : common) out.push_back(s);
  for (int i = d + n; i < x.rank(); ++i) out.push_back(x[i]);
  return out;
}
void index_infer(InferCall& c) {
  c.out[0] = Spec(c.in[0].dtype, indexed_shape(c, c.in[0].shape, 1), c.in[0].device);
}
void index_put_infer(InferCall& c) {
  check_same_dtype(c, 1, "value");
  const Shape want = indexed_shape(c, c.in[0].shape, 2);
  TD_CHECK(detail::same_sizes(want, c.in[1].shape), Shape, "expected a value of shape {}, got {}",
           want.to_string(), c.in[1].shape.to_string());
  c.out[0] = c.in[0];
}
void index_backward_infer(InferCall& c) {
  const IndexAttrs& a = c.get_attrs<IndexAttrs>();
  const Shape want = indexed_shape(c, a.shape, 1);
  TD_CHECK(detail::same_sizes(want, c.in[0].shape), Shape,
           "expected a gradient of shape {}, got {}", want.to_string(), c.in[0].shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, a.shape, c.in[0].device);
}

std::vector<Tensor> saved_indices(const VjpCall& c, int first) {
  std::vector<Tensor> out;
  for (int i = first; i < c.n_in(); ++i) out.push_back(c.in(i));
  return out;
}
Tensor zeros_of(const Shape& s, DType dtype, SourceLocation loc) {
  FillAttrs f{Shape(), 0, dtype};
  ShapeAttrs a{s};
  return call(op::expand, &a, loc, call(op::fill, &f, loc));
}

void index_vjp(VjpCall& c) {
  IndexAttrs a = c.get_attrs<IndexAttrs>();
  a.shape = c.in_shape(0);
  c.results[0] = call_list(op::index_backward, &a, c.loc(), saved_indices(c, 1),
                           std::span<const Tensor>(&c.grad(), 1));
}
void index_put_vjp(VjpCall& c) {
  IndexAttrs a = c.get_attrs<IndexAttrs>();
  const std::vector<Tensor> at = saved_indices(c, 2);
  const Tensor& g = c.grad();
  if (c.needs(0)) {
    if (a.accumulate) {
      c.results[0] = g;
    } else {
      const Tensor before[] = {g, zeros_of(c.in_shape(1), g.dtype(), c.loc())};
      c.results[0] = call_list(op::index_put, &a, c.loc(), at, before);
    }
  }
  a.accumulate = false;
  if (c.needs(1))
    c.results[1] = call_list(op::index, &a, c.loc(), at, std::span<const Tensor>(&g, 1));
}
void index_backward_vjp(VjpCall& c) {
  const IndexAttrs& a = c.get_attrs<IndexAttrs>();
  const std::vector<Tensor> at = saved_indices(c, 1);
  IndexAttrs plain = a;
  plain.shape = {};
  plain.skip = -1;
  Tensor g = call_list(op::index, &plain, c.loc(), at, std::span<const Tensor>(&c.grad(), 1));
  if (a.skip >= 0) {
    Shape s = at.back().shape();
    const int inner =
        a.shape.rank() - normalize_dim(a.dim, a.shape.rank()) - static_cast<int>(at.size());
    for (int i = 0; i < inner; ++i) s.push_back(1);
    g = masked_fill(g, reshape(at.back() == Operand(a.skip, c.loc()), s, c.loc()), 0.0, c.loc());
  }
  c.results[0] = g;
}

// Index tensors of a batched call with the position in the batch prepended, all of one rank.
std::vector<Tensor> batch_indices(const BatchCall& c, int first, bool with_position) {
  int rank = 0;
  for (int i = first; i < c.n_in(); ++i) rank = std::max(rank, c.rank(i));
  std::vector<Tensor> out;
  if (with_position) {
    Shape s(c.batch_size);
    for (int i = 0; i < rank; ++i) s.push_back(1);
    out.push_back(reshape(arange_dim(c.batch_size, c.node.loc), s, c.node.loc));
  }
  for (int i = first; i < c.n_in(); ++i) out.push_back(detail::with_rank(c, i, rank));
  return out;
}
bool any_batched(const BatchCall& c, int first) {
  for (int i = first; i < c.n_in(); ++i)
    if (c.batched[i]) return true;
  return false;
}
int index_dim(const BatchCall& c, int rank) {
  return normalize_dim(c.get_attrs<IndexAttrs>().dim, rank);
}

void index_batch(BatchCall& c) {
  IndexAttrs a = c.get_attrs<IndexAttrs>();
  const SourceLocation loc = c.node.loc;
  const int d = a.dim = index_dim(c, c.rank(0));
  const bool positions = any_batched(c, 1);
  Tensor x = c.in[0];
  if (!positions) {
    a.dim = d + 1;
    c.out[0] =
        call_list(op::index, &a, loc, batch_indices(c, 1, false), std::span<const Tensor>(&x, 1));
    return;
  }
  if (c.batched[0]) x = movedim(x, 0, d, loc);
  const Tensor y = call_list(op::index, &a, loc, batch_indices(c, 1, c.batched[0]),
                             std::span<const Tensor>(&x, 1));
  c.out[0] = movedim(y, d, 0, loc);
}
void index_put_batch(BatchCall& c) {
  IndexAttrs a = c.get_attrs<IndexAttrs>();
  const SourceLocation loc = c.node.loc;
  const int d = index_dim(c, c.rank(0));
  const bool positions = any_batched(c, 2);
  Tensor before[] = {detail::with_batch(c, 0), detail::with_batch(c, 1)};
  if (positions)
    for (Tensor& t : before) t = movedim(t, 0, d, loc);
  a.dim = positions ? d : d + 1;
  const Tensor y = call_list(op::index_put, &a, loc, batch_indices(c, 2, positions), before);
  c.out[0] = positions ? movedim(y, d, 0, loc) : y;
}
void index_backward_batch(BatchCall& c) {
  IndexAttrs a = c.get_attrs<IndexAttrs>();
  const SourceLocation loc = c.node.loc;
  const int d = index_dim(c, a.shape.rank());
  const bool positions = any_batched(c, 1);
  Tensor g = detail::with_batch(c, 0);
  if (positions) g = movedim(g, 0, d, loc);
  a.dim = positions ? d : d + 1;
  a.shape.insert(positions ? d : 0, c.batch_size);
  const Tensor y = call_list(op::index_backward, &a, loc, batch_indices(c, 1, positions),
                             std::span<const Tensor>(&g, 1));
  c.out[0] = positions ? movedim(y, d, 0, loc) : y;
}

// ---- region_put
void region_put_infer(InferCall& c) {
  const RegionAttrs& a = c.get_attrs<RegionAttrs>();
  const Spec& x = c.in[0];
  check_same_dtype(c, 1, "value");
  TD_CHECK(a.start.rank() == x.rank() && a.length.rank() == x.rank() && a.step.rank() == x.rank(),
           Shape, "expected start, length and step for the {} dimensions of x {}", x.rank(),
           x.shape.to_string());
  TD_CHECK(detail::same_sizes(a.length, c.in[1].shape), Shape,
           "expected a value of shape {}, got {}", a.length.to_string(), c.in[1].shape.to_string());
  for (int i = 0; i < x.rank(); ++i) {
    const Dim start = a.start[i], length = a.length[i], step = a.step[i];
    TD_CHECK(step.value() > 0, Value, "step must be positive, got {}", step.to_string());
    if (start.is_symbolic() || length.is_symbolic() || x[i].is_symbolic() || length.raw() == 0)
      continue;
    TD_CHECK(start.raw() >= 0 && start.raw() < x[i].raw() &&
                 length.raw() - 1 <= (x[i].raw() - 1 - start.raw()) / step.raw(),
             Index, "{} elements from {} by {} go past dimension {} of x {}", length.raw(),
             start.raw(), step.raw(), i, x.shape.to_string());
  }
  c.out[0] = x;
}
void region_put_vjp(VjpCall& c) {
  const RegionAttrs& a = c.get_attrs<RegionAttrs>();
  const Tensor& g = c.grad();
  if (c.needs(0)) {
    c.results[0] =
        a.accumulate ? g
                     : call(op::region_put, &a, c.loc(), g, zeros_of(a.length, g.dtype(), c.loc()));
  }
  if (!c.needs(1)) return;
  Tensor v = g;
  for (int d = 0; d < a.start.rank(); ++d) {
    if (a.start[d] == Dim(0) && a.step[d] == Dim(1) && a.length[d] == v.shape(d)) continue;
    SliceAttrs s{d, IntList(a.start[d], a.length[d], a.step[d])};
    v = call(op::slice, &s, c.loc(), v);
  }
  c.results[1] = v;
}
void region_put_batch(BatchCall& c) {
  RegionAttrs a = c.get_attrs<RegionAttrs>();
  a.start.insert(0, 0);
  a.length.insert(0, c.batch_size);
  a.step.insert(0, 1);
  c.out[0] =
      call(op::region_put, &a, c.node.loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}

// ---- gather, scatter
// index may be smaller than `other` in all dims except `skip`.
void check_inside(const Shape& index, const Shape& other, int skip, const char* name) {
  TD_CHECK(index.rank() == other.rank(), Shape, "index {} and {} {} must have as many dimensions",
           index.to_string(), name, other.to_string());
  for (int i = 0; i < index.rank(); ++i)
    TD_CHECK(i == skip || index[i].is_symbolic() || other[i].is_symbolic() ||
                 index[i].raw() <= other[i].raw(),
             Shape, "index {} is larger than {} {} in dimension {}", index.to_string(), name,
             other.to_string(), i);
}
int gather_dim(const InferCall& c) {
  const int rank = c.in[0].rank();
  return normalize_dim(c.get_attrs<GatherAttrs>().dim, rank ? rank : 1);
}
void gather_infer(InferCall& c) {
  check_index_dtype(c, 1);
  check_inside(c.in[1].shape, c.in[0].shape, gather_dim(c), "x");
  c.out[0] = Spec(c.in[0].dtype, c.in[1].shape, c.in[0].device);
}
void scatter_infer(InferCall& c) {
  check_index_dtype(c, 1);
  check_same_dtype(c, 2, "src");
  check_inside(c.in[1].shape, c.in[0].shape, gather_dim(c), "x");
  check_inside(c.in[1].shape, c.in[2].shape, -1, "src");
  c.out[0] = c.in[0];
}
void gather_vjp(VjpCall& c) {
  const Tensor& g = c.grad();
  GatherAttrs a = c.get_attrs<GatherAttrs>();
  FillAttrs f{c.in_shape(0), 0, g.dtype()};
  c.results[0] = call(op::scatter_add, &a, c.loc(), call(op::fill, &f, c.loc()), c.in(1), g);
}
// The gradient of src: the elements picked by index, zeros where src was larger.
Tensor source_grad(const VjpCall& c) {
  const GatherAttrs& a = c.get_attrs<GatherAttrs>();
  Tensor g = call(op::gather, &a, c.loc(), c.grad(), c.in(1));
  const Shape &have = c.in_shape(1), &want = c.in_shape(2);
  if (have == want) return g;
  PadAttrs p;
  for (int i = 0; i < want.rank(); ++i) {
    p.before.push_back(0);
    p.after.push_back(want[i] - have[i]);
  }
  return call(op::pad, &p, c.loc(), g);
}
void scatter_vjp(VjpCall& c) {
  const GatherAttrs& a = c.get_attrs<GatherAttrs>();
  const Tensor& g = c.grad();
  if (c.needs(0))
    c.results[0] =
        call(op::scatter, &a, c.loc(), g, c.in(1), zeros_of(c.in_shape(1), g.dtype(), c.loc()));
  if (c.needs(2)) c.results[2] = source_grad(c);
}
void scatter_add_vjp(VjpCall& c) {
  if (c.needs(0)) c.results[0] = c.grad();
  if (c.needs(2)) c.results[2] = source_grad(c);
}
GatherAttrs batched_gather(const BatchCall& c) {
  const int rank = c.rank(0);
  TD_CHECK(rank > 0, Unsupported, "0-d tensors are not supported inside vmap");
  return GatherAttrs{normalize_dim(c.get_attrs<GatherAttrs>().dim, rank) + 1};
}
void gather_batch(BatchCall& c) {
  const GatherAttrs a = batched_gather(c);
  c.out[0] = call(op::gather, &a, c.node.loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}
void scatter_batch(BatchCall& c) {
  const GatherAttrs a = batched_gather(c);
  c.out[0] = call(*c.node.op, &a, c.node.loc, detail::with_batch(c, 0), detail::with_batch(c, 1),
                  detail::with_batch(c, 2));
}

// ---- dynamic_update, dynamic_slice
void check_start(const InferCall& c) {
  if (c.is_scalar(1)) return;
  check_index_dtype(c, 1);
  TD_CHECK(c.in[1].rank() == 0 || c.in[1].shape.numel() == Dim(1), Shape,
           "start must be one number, got shape {}", c.in[1].shape.to_string());
}
int update_dim(const ShapeAttrs& a, int rank) {
  TD_CHECK(a.shape.rank() == 1, Value, "expected one dimension, got {}", a.shape.to_string());
  return normalize_dim(a.shape[0].value(), rank);
}
void dynamic_update_infer(InferCall& c) {
  const Spec &x = c.in[0], &v = c.in[2];
  check_start(c);
  check_same_dtype(c, 2, "value");
  const int d = update_dim(c.get_attrs<ShapeAttrs>(), x.rank());
  bool fits = v.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = i == d ? x[i].is_symbolic() || v[i].is_symbolic() || v[i].raw() <= x[i].raw()
                  : dims_equal(x[i], v[i]);
  TD_CHECK(fits, Shape, "a value of shape {} does not fit into dimension {} of x {}",
           v.shape.to_string(), d, x.shape.to_string());
  c.out[0] = x;
}
void dynamic_slice_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const DynamicSliceAttrs& a = c.get_attrs<DynamicSliceAttrs>();
  check_start(c);
  const int d = normalize_dim(a.dim, x.rank());
  const Dim n = a.length.rank() ? a.length[0] : Dim(1);
  TD_CHECK(n.is_symbolic() || x[d].is_symbolic() || (n.raw() >= 0 && n.raw() <= x[d].raw()), Shape,
           "length {} does not fit into dimension {} of x {}", n.to_string(), d,
           x.shape.to_string());
  Shape out = x.shape;
  out[d] = n;
  c.out[0] = Spec(x.dtype, out, x.device);
}
Operand start_operand(const VjpCall& c) {
  return c.node.in[1].is_scalar ? Operand(c.scalar(1), c.loc()) : Operand(c.in(1), c.loc());
}
void dynamic_update_vjp(VjpCall& c) {
  const int64_t d = c.get_attrs<ShapeAttrs>().shape[0].value();
  const Tensor& g = c.grad();
  if (c.needs(0))
    c.results[0] = dynamic_update(g, d, start_operand(c),
                                  zeros_of(c.in_shape(2), g.dtype(), c.loc()), c.loc());
  if (c.needs(2))
    c.results[2] = dynamic_slice(g, d, start_operand(c),
                                 c.in_shape(2)[normalize_dim(d, c.in_shape(2).rank())], c.loc());
}
void dynamic_slice_vjp(VjpCall& c) {
  FillAttrs f{c.in_shape(0), 0, c.grad().dtype()};
  c.results[0] = dynamic_update(call(op::fill, &f, c.loc()), c.get_attrs<DynamicSliceAttrs>().dim,
                                start_operand(c), c.grad(), c.loc());
}
// Positions start .. start + n of each example, and its index: index tensors for dims 0 and 1.
std::vector<Tensor> batch_positions(const BatchCall& c, Dim n) {
  const SourceLocation loc = c.node.loc;
  const Tensor b = reshape(arange_dim(c.batch_size, loc), Shape(c.batch_size, 1), loc);
  const Tensor start = reshape(c.in[1].to(DType::i64, loc), Shape(c.batch_size, 1), loc);
  return {b, Operand(start, loc) + Operand(arange_dim(n, loc), loc)};
}
void dynamic_update_batch(BatchCall& c) {
  const int d = update_dim(c.get_attrs<ShapeAttrs>(), c.rank(0));
  const SourceLocation loc = c.node.loc;
  const Tensor x = detail::with_batch(c, 0), v = detail::with_batch(c, 2);
  if (!c.batched[1]) {
    c.out[0] = c.node.in[1].is_scalar
                   ? dynamic_update(x, d + 1, Operand(c.node.in[1].scalar, loc), v, loc)
                   : dynamic_update(x, d + 1, Operand(c.in[1], loc), v, loc);
    return;
  }
  IndexAttrs a;
  const Tensor before[] = {movedim(x, d + 1, 1, loc), movedim(v, d + 1, 1, loc)};
  c.out[0] = movedim(call_list(op::index_put, &a, loc, batch_positions(c, v.shape(d + 1)), before),
                     1, d + 1, loc);
}
void dynamic_slice_batch(BatchCall& c) {
  const DynamicSliceAttrs& a = c.get_attrs<DynamicSliceAttrs>();
  const int d = normalize_dim(a.dim, c.rank(0));
  const SourceLocation loc = c.node.loc;
  Tensor x = detail::with_batch(c, 0);
  if (!c.batched[1]) {
    c.out[0] = c.node.in[1].is_scalar
                   ? dynamic_slice(x, d + 1, Operand(c.node.in[1].scalar, loc), a.length[0], loc)
                   : dynamic_slice(x, d + 1, Operand(c.in[1], loc), a.length[0], loc);
    return;
  }
  IndexAttrs at;
  x = movedim(x, d + 1, 1, loc);
  c.out[0] = movedim(call_list(op::index, &at, loc, batch_positions(c, a.length[0]),
                               std::span<const Tensor>(&x, 1)),
                     1, d + 1, loc);
}

// ---- sort, topk
void sort_infer(InferCall& c) {
  const Spec& x = c.in[0];
  normalize_dim(c.get_attrs<SortAttrs>().dim, x.rank() ? x.rank() : 1);
  c.out[0] = x;
  c.out[0].contents = nullptr;
  c.out[1] = Spec(DType::i64, x.shape, x.device);
}
void topk_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const SortAttrs& a = c.get_attrs<SortAttrs>();
  const int d = normalize_dim(a.dim, x.rank() ? x.rank() : 1);
  const Dim n = x.rank() ? x[d] : Dim(1);
  TD_CHECK(a.k >= 0 && (n.is_symbolic() || a.k <= n.raw()), Index,
           "k is {}, dimension {} of x {} has {} elements", a.k, d, x.shape.to_string(),
           n.to_string());
  Shape out = x.shape;
  if (x.rank()) out[d] = a.k;
  c.out[0] = Spec(x.dtype, out, x.device);
  c.out[1] = Spec(DType::i64, out, x.device);
}
void sort_vjp(VjpCall& c) {
  GatherAttrs a{c.get_attrs<SortAttrs>().dim};
  FillAttrs f{c.in_shape(0), 0, c.grad().dtype()};
  c.results[0] = call(op::scatter, &a, c.loc(), call(op::fill, &f, c.loc()), c.out(1), c.grad());
}
void sort_batch(BatchCall& c) {
  SortAttrs a = c.get_attrs<SortAttrs>();
  Tensor x = c.in[0];
  const bool scalar = c.rank(0) == 0;  // one element per example: along a dimension of size 1
  if (scalar) x = unsqueeze(x, 1, c.node.loc);
  a.dim = scalar ? 1 : normalize_dim(a.dim, c.rank(0)) + 1;
  Operand in[] = {Operand(x, c.node.loc)};
  apply(*c.node.op, &a, in, c.out, c.node.loc);
  if (scalar)
    for (int i = 0; i < 2; ++i) c.out[i] = reshape(c.out[i], Shape(c.batch_size), c.node.loc);
}

// ---- nonzero, one_hot, bincount
void nonzero_infer(InferCall& c) {
  const NonzeroAttrs& a = c.get_attrs<NonzeroAttrs>();
  TD_CHECK(a.size >= 0, Value, "size must not be negative, got {}", a.size);
  c.out[0] = Spec(DType::i64, Shape(a.size, c.in[0].rank()), c.in[0].device);
}
void one_hot_infer(InferCall& c) {
  check_index_dtype(c, 0);
  const int64_t n = c.get_attrs<OneHotAttrs>().num_classes;
  TD_CHECK(n > 0, Value, "num_classes must be positive, got {}", n);
  Shape out = c.in[0].shape;
  out.push_back(n);
  c.out[0] = Spec(DType::i64, out, c.in[0].device);
}
void one_hot_batch(BatchCall& c) {
  c.out[0] = one_hot(c.in[0], c.get_attrs<OneHotAttrs>().num_classes, c.node.loc);
}
void bincount_infer(InferCall& c) {
  check_index_dtype(c, 0);
  TD_CHECK(c.in[0].rank() == 1, Shape, "expected a vector, x is {}", c.in[0].shape.to_string());
  c.out[0] = Spec(DType::i64, Shape(c.get_attrs<BincountAttrs>().size), c.in[0].device);
}

constexpr const char* kRangeText =
    "index {} is out of range< for x {x}><, which has {x.dim} entries in dimension {dim}>\n"
    "Use indices from 0< to {x.dim-1}>; an embedding expects as many rows as there are ids.";
constexpr const char* kStartText =
    "index {} is out of range< for x {x}>: what begins there ends outside\n"
    "Check the start and the length against x.size(dim).";
constexpr OpDef row(const char* name, Names in, const AttrsType* attrs) {
  return index_row(name, in, attrs)
      .flops(detail::no_flops)
      .bytes(detail::bytes_moved)
      .errors({kRangeText});
}

}  // namespace

namespace op {
constinit const OpDef index =
    row("index", {"x", "indices*"}, fields<IndexAttrs>())
        .infer(index_infer)
        .vjp(index_vjp, 1u << 1)
        .batch(index_batch)
        .reference(detail::run_index)
        .doc(
            "Elements of x at index tensors, which index dimensions dim, dim + 1, ... and are "
            "broadcast together. index_select, embedding and x[i] use this row.");
constinit const OpDef index_put =
    row("index_put", {"x", "value", "indices*"}, fields<IndexAttrs>())
        .flag(kReuseFirst)
        .infer(index_put_infer)
        .vjp(index_put_vjp, 1u << 2)
        .batch(index_put_batch)
        .reference(detail::run_index_put)
        .doc("x with value written (or added) at index tensors, in the order of the indices.");
constinit const OpDef index_backward =
    row("index_backward", {"g", "indices*"}, fields<IndexAttrs>())
        .infer(index_backward_infer)
        .vjp(index_backward_vjp, 1u << 1)
        .batch(index_backward_batch)
        .reference(detail::run_index_backward)
        .doc("Zeros of a shape with g added at index tensors: the derivative of index.");
constinit const OpDef region_put =
    row("region_put", {"x", "value"}, fields<RegionAttrs>())
        .flag(kReuseFirst | kMoved)
        .infer(region_put_infer)
        .vjp(region_put_vjp)
        .batch(region_put_batch)
        .reference(detail::run_region_put)
        .doc("x with value written (or added) over a region of start, length and step.");
constinit const OpDef gather =
    row("gather", {"x", "index"}, fields<GatherAttrs>())
        .infer(gather_infer)
        .vjp(gather_vjp, 1u << 1)
        .batch(gather_batch)
        .reference(detail::run_gather)
        .onnx("GatherElements")
        .doc(
            "Elements of x whose position along dim is given by index; the other positions are "
            "those of index itself.");
constinit const OpDef scatter =
    row("scatter", {"x", "index", "src"}, fields<GatherAttrs>())
        .flag(kReuseFirst)
        .infer(scatter_infer)
        .vjp(scatter_vjp, 1u << 1)
        .batch(scatter_batch)
        .reference(detail::run_scatter)
        .onnx("ScatterElements")
        .doc("x with the elements of src written where gather would read; the last one wins.");
constinit const OpDef scatter_add =
    row("scatter_add", {"x", "index", "src"}, fields<GatherAttrs>())
        .flag(kReuseFirst)
        .infer(scatter_infer)
        .vjp(scatter_add_vjp, 1u << 1)
        .batch(scatter_batch)
        .reference(detail::run_scatter_add)
        .doc("x with the elements of src added where gather would read.");
constinit const OpDef dynamic_update =
    row("dynamic_update", {"x", "start$", "value"}, fields<ShapeAttrs>())
        .flag(kReuseFirst)
        .infer(dynamic_update_infer)
        .vjp(dynamic_update_vjp, 1u << 1)
        .batch(dynamic_update_batch)
        .reference(detail::run_dynamic_update)
        .errors({kStartText})
        .doc(
            "x with value written over entries from start on of dimension shape[0]; start may be "
            "a 0-d tensor.");
constinit const OpDef dynamic_slice =
    row("dynamic_slice", {"x", "start$"}, fields<DynamicSliceAttrs>())
        .infer(dynamic_slice_infer)
        .vjp(dynamic_slice_vjp, 1u << 1)
        .batch(dynamic_slice_batch)
        .reference(detail::run_dynamic_slice)
        .errors({kStartText})
        .doc("length entries of a dimension from start, which may be a 0-d tensor.");
constinit const OpDef sort =
    row("sort", {"x"}, fields<SortAttrs>())
        .outputs({"values", "indices"})
        .infer(sort_infer)
        .vjp(sort_vjp, 0, 1u << 1)
        .batch(sort_batch)
        .reference(detail::run_sort)
        .doc("Values sorted along dim and their positions; stable, NaN is the largest.");
constinit const OpDef topk =
    row("topk", {"x"}, fields<SortAttrs>())
        .outputs({"values", "indices"})
        .infer(topk_infer)
        .vjp(sort_vjp, 0, 1u << 1)
        .batch(sort_batch)
        .reference(detail::run_topk)
        .doc("The k largest (smallest) values along dim, sorted, and their positions.");
constinit const OpDef nonzero =
    row("nonzero", {"x"}, fields<NonzeroAttrs>())
        .flag(kNotDifferentiable)
        .infer(nonzero_infer)
        .reference(detail::run_nonzero)
        .doc("Coordinates of the nonzero elements: size rows, padded with fill.");
constinit const OpDef one_hot =
    row("one_hot", {"x"}, fields<OneHotAttrs>())
        .flag(kNotDifferentiable)
        .infer(one_hot_infer)
        .batch(one_hot_batch)
        .reference(detail::run_one_hot)
        .errors({"index {} is out of range<: num_classes is {num_classes}>\nClasses count from 0; "
                 "set num_classes to the largest plus one."})
        .doc("Class indices as vectors of 0 and 1 in a new last dimension.");
constinit const OpDef bincount =
    row("bincount", {"x"}, fields<BincountAttrs>())
        .flag(kNotDifferentiable)
        .infer(bincount_infer)
        .reference(detail::run_bincount)
        .errors({"index {} is out of range<: there are {size} bins>\nbincount counts whole "
                 "numbers from 0 on."})
        .doc("How often each of 0, 1, ... size - 1 occurs in a vector.");
}  // namespace op

std::span<const OpDef* const> index_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::index,   &op::index_put,   &op::index_backward, &op::region_put,    &op::gather,
      &op::scatter, &op::scatter_add, &op::dynamic_update, &op::dynamic_slice, &op::sort,
      &op::topk,    &op::nonzero,     &op::one_hot,        &op::bincount,
  };
  return kRows;
}

}  // namespace tandem
