// SPDX-License-Identifier: Apache-2.0
// Indexing, gathering, sorting.
#include <cmath>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

IndexAttrs index_at(int64_t dim) {
  IndexAttrs a;
  a.dim = dim;
  return a;
}

std::string padded_rows(OnnxBuilder& b, const std::string& rows, const Shape& shape, int64_t fill) {
  const std::string rest = b.constant(full(shape, fill, DType::i64));
  return b.slice(b.node("Concat", {rows, rest}, {onnx_int("axis", 0)}), 0, 0, shape[0]);
}

namespace {

// Index tensors from input `first` on, for dimensions d, d + 1, ...: in the form of ONNX's *ND ops,
// [common..., n], with a tensor whose indexed dimensions come first.
struct Indices {
  std::string all;
  Shape common;
  int d, n;
  std::vector<int64_t> to_front;  // dims of the whole tensor, the indexed ones first

  Indices(OnnxExportCall& c, size_t first, int rank) {
    d = normalize_dim(c.get_attrs<IndexAttrs>().dim, rank);
    n = static_cast<int>(c.in.size() - first);
    for (size_t i = first; i < c.in.size(); ++i) common = broadcast_shapes(common, c.shape(i));
    Names parts;
    const std::string last = c.b.ints({-1});
    for (size_t i = first; i < c.in.size(); ++i) {
      std::string v = c.x(i, DType::i64);
      if (!(c.shape(i) == common)) v = c.b.expand(v, common);
      parts.push_back(c.b.node("Unsqueeze", {v, last}));
    }
    all = n == 1 ? parts[0] : c.b.node("Concat", parts, {onnx_int("axis", -1)});
    for (int i = 0; i < n; ++i) to_front.push_back(d + i);
    for (int i = 0; i < rank; ++i)
      if (i < d || i >= d + n) to_front.push_back(i);
  }
  std::vector<int64_t> to_back() const {
    std::vector<int64_t> back(to_front.size());
    for (size_t i = 0; i < back.size(); ++i)
      back[static_cast<size_t>(to_front[i])] = static_cast<int64_t>(i);
    return back;
  }
  // [lead..., common..., tail...] (our order) to [common..., lead..., tail...].
  std::vector<int64_t> values_to_front(int rank) const {
    std::vector<int64_t> perm;
    for (int i = 0; i < common.rank(); ++i) perm.push_back(d + i);
    for (int i = 0; i < rank; ++i)
      if (i < d || i >= d + common.rank()) perm.push_back(i);
    return perm;
  }
};

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return back;
}

std::string scatter_nd(OnnxBuilder& b, const std::string& x, const std::string& at,
                       const std::string& v, bool add) {
  OnnxAttributes a;
  if (add) a.push_back(onnx_text("reduction", "add"));
  return b.node("ScatterND", {x, at, v}, a);
}

}  // namespace

bool export_index(OnnxExportCall& c) {
  if (c.in.size() == 2) {
    c.set(0, c.b.node("Gather", {c.x(0), c.x(1)},
                      {onnx_int("axis", c.axis(c.get_attrs<IndexAttrs>().dim))}));
    return true;
  }
  const Indices at(c, 1, c.rank(0));
  const std::string y = c.b.node("GatherND", {c.b.permute(c.x(0), at.to_front), at.all});
  c.set(0, c.b.permute(y, inverse(at.values_to_front(c.out[0].rank()))));
  return true;
}

bool export_index_put(OnnxExportCall& c) {
  const Indices at(c, 2, c.rank(0));
  const std::string x = c.b.permute(c.x(0), at.to_front);
  const std::string v = c.b.permute(c.x(1), at.values_to_front(c.rank(1)));
  const std::string y = scatter_nd(c.b, x, at.all, v, c.get_attrs<IndexAttrs>().accumulate);
  c.set(0, c.b.permute(y, at.to_back()));
  return true;
}

bool export_index_backward(OnnxExportCall& c) {
  const auto& a = c.get_attrs<IndexAttrs>();
  const Indices at(c, 1, a.shape.rank());
  std::string g = c.b.permute(c.x(0), at.values_to_front(c.rank(0)));
  if (a.skip >= 0) {
    const size_t last = c.in.size() - 1;
    std::string hit = c.b.node("Equal", {c.x(last, DType::i64), c.b.number(a.skip, DType::i64)});
    Shape s = c.shape(last);
    for (int i = at.common.rank(); i < c.rank(0); ++i) s.push_back(1);
    hit = c.b.reshape(hit, s);
    g = c.b.node("Where", {hit, c.b.number(0, c.dtype(0)), g});
  }
  Shape moved;
  for (const int64_t d : at.to_front) moved.push_back(a.shape[static_cast<int>(d)]);
  const std::string zeros = c.b.node("ConstantOfShape", {c.b.dims(moved)},
                                     {onnx_tensor("value", full({1}, 0, c.dtype(0)))});
  c.set(0, c.b.permute(scatter_nd(c.b, zeros, at.all, g, true), at.to_back()));
  return true;
}

bool export_region_put(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RegionAttrs>();
  const Shape out = c.out[0].shape;
  if (out.is_symbolic() || a.start.is_symbolic() || a.length.is_symbolic() || a.step.is_symbolic())
    return false;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    Tensor v = in[1], inside;
    for (int d = 0; d < out.rank(); ++d) {
      Shape s = v.shape();
      s[d] = out[d];
      const SliceBackwardAttrs grown{s, d, {a.start[d], a.length[d], a.step[d]}};
      v = call(op::slice_backward, &grown, SourceLocation::here(), v);
      std::vector<int64_t> line(static_cast<size_t>(out[d].value()));
      for (int64_t k = 0; k < a.length[d].value(); ++k)
        line[static_cast<size_t>(a.start[d].value() + k * a.step[d].value())] = 1;
      Shape at;
      for (int k = 0; k < out.rank(); ++k) at.push_back(k == d ? out[d] : Dim(1));
      const Tensor here = constant(tensor(line).to(DType::b8).reshape(at));
      inside = inside.defined() ? logical_and(inside, here) : here;
    }
    if (a.accumulate) return {in[0] + v};
    return {where(inside, v, in[0])};
  });
}

bool export_gather(OnnxExportCall& c) {
  c.set(0, c.b.node("GatherElements", {c.x(0), c.x(1, DType::i64)},
                    {onnx_int("axis", c.axis(c.get_attrs<GatherAttrs>().dim))}));
  return true;
}

namespace {
bool scatter_as(OnnxExportCall& c, int64_t dim, const char* reduction) {
  if (c.rank(0) == 0) return false;
  std::string src = c.x(2);
  // Only the first elements of a larger source count.
  for (int d = 0; d < c.rank(1); ++d)
    if (!(c.shape(2)[d] == c.shape(1)[d])) src = c.b.slice(src, d, 0, c.shape(1)[d]);
  OnnxAttributes a = {onnx_int("axis", c.axis(dim))};
  if (reduction) a.push_back(onnx_text("reduction", reduction));
  c.set(0, c.b.node("ScatterElements", {c.x(0), c.x(1, DType::i64), src}, a));
  return true;
}
}  // namespace
bool export_scatter(OnnxExportCall& c) {
  return scatter_as(c, c.get_attrs<GatherAttrs>().dim, nullptr);
}
bool export_scatter_add(OnnxExportCall& c) {
  return c.dtype(0) != DType::b8 && scatter_as(c, c.get_attrs<GatherAttrs>().dim, "add");
}
namespace {
int64_t extreme_of(DType t, bool largest) {
  if (t == DType::u8) return largest ? 255 : 0;
  const int bits = 8 * static_cast<int>(size_of(t)) - 1;
  const auto top = static_cast<int64_t>((uint64_t{1} << bits) - 1);
  return largest ? top : -top - 1;
}
}  // namespace

bool export_scatter_extreme(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ScatterExtremeAttrs>();
  if (c.b.opset() < 18) return false;
  if (a.include_self) return scatter_as(c, a.dim, a.largest ? "max" : "min");
  // Places that are written to start with a value that never wins.
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const int d = c.axis(a.dim);
    const DType t = in[0].dtype();
    const Scalar worst = is_floating(t) ? Scalar(a.largest ? -INFINITY : INFINITY)
                                        : Scalar(extreme_of(t, !a.largest));
    const Tensor start = scatter(in[0], d, in[1], where(in[1] == in[1], worst, worst).to(t));
    const ScatterExtremeAttrs self{a.dim, a.largest, true};
    return {call(op::scatter_extreme, &self, SourceLocation::here(), start, in[1], in[2])};
  });
}

namespace {
// start, start + 1, ... as positions along `d`.
Tensor places_from(const OnnxExportCall& c, const Tensor& start, Dim length) {
  const Tensor steps = arange_dim(length);
  if (!start.defined()) return steps + c.in[1].number.to_int();
  return steps + start.reshape({}).to(DType::i64);
}
}  // namespace

bool export_dynamic_update(OnnxExportCall& c) {
  const int d = c.axis(c.get_attrs<ShapeAttrs>().shape[0].value());
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const IndexAttrs a = index_at(d);
    const Tensor at[] = {places_from(c, in[1], in[2].shape(d))}, both[] = {in[0], in[2]};
    return {call_list(op::index_put, &a, SourceLocation::here(), at, both)};
  });
}
bool export_dynamic_slice(OnnxExportCall& c) {
  const auto& a = c.get_attrs<DynamicSliceAttrs>();
  const int d = c.axis(a.dim);
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const IndexAttrs index = index_at(d);
    const Tensor at[] = {places_from(c, in[1], a.length[0])};
    return {call_list(op::index, &index, SourceLocation::here(), at, in.first(1))};
  });
}

// ---- sorting

namespace {
bool best_of(OnnxExportCall& c, bool largest, const std::string& k) {
  if (c.rank(0) == 0 || c.dtype(0) == DType::b8) return false;
  const int d = c.axis(c.get_attrs<SortAttrs>().dim);
  const DType t = c.dtype(0),
              w = t == DType::i16 || t == DType::i8 || t == DType::u8 ? DType::i32 : t;
  const Names y =
      c.b.add("TopK", {c.x(0, w), k}, 2, {onnx_int("axis", d), onnx_int("largest", largest)});
  c.set(0, c.b.cast(y[0], w, t));
  c.set(1, y[1]);
  return true;
}
}  // namespace
bool export_sort(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SortAttrs>();
  if (c.rank(0) == 0) return false;
  return best_of(c, a.descending, c.b.dim(c.shape(0)[c.axis(a.dim)]));
}
bool export_topk(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SortAttrs>();
  return best_of(c, a.descending, c.b.ints({a.k}));
}

bool export_nonzero(OnnxExportCall& c) {
  const auto& a = c.get_attrs<NonzeroAttrs>();
  const Shape out = c.out[0].shape;
  if (out.is_symbolic() || a.size == 0) return false;
  const std::string found = c.b.node("NonZero", {c.x(0)});
  c.set(0, padded_rows(c.b, c.b.permute(found, {1, 0}), out, a.fill));
  return true;
}
bool export_one_hot(OnnxExportCall& c) {
  const auto& a = c.get_attrs<OneHotAttrs>();
  c.set(0, c.b.cast(c.b.node("OneHot",
                             {c.x(0, DType::i64), c.b.ints({a.num_classes}), c.b.ints({0, 1})}),
                    DType::i64, c.out[0].dtype));
  return true;
}
bool export_bincount(OnnxExportCall& c) {
  const auto& a = c.get_attrs<BincountAttrs>();
  if (a.size == 0) return false;
  const std::string hits =
      c.b.node("OneHot", {c.x(0, DType::i64), c.b.ints({a.size}), c.b.ints({0, 1})});
  c.set(0, c.b.cast(c.b.reduce("ReduceSum", hits, {0}, false), DType::i64, c.out[0].dtype));
  return true;
}

// The number of elements that come before, found by comparing with each.
bool export_searchsorted(OnnxExportCall& c) {
  const auto& a = c.get_attrs<SearchAttrs>();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor v = in[1].unsqueeze(-1);
    const Tensor s = in[0].dim() <= 1 ? in[0] : in[0].unsqueeze(-2);
    return {(a.right ? s <= v : s < v).to(DType::i64).sum({-1}).to(c.out[0].dtype)};
  });
}
bool export_cdist(OnnxExportCall& c) {
  return c.by_ops([](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor apart = in[0].unsqueeze(-2) - in[1].unsqueeze(-3);
    return {sqrt((apart * apart).sum({-1}))};
  });
}

}  // namespace tandem::onnx
