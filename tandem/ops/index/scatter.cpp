// SPDX-License-Identifier: Apache-2.0
// The row scatter_extreme, and functions built on it and on scatter_add. Products use a linear scan
// over the sources in order of their place, so their derivatives are right at zeros too.
#include "tandem/ops/index/scatter.h"

#include <cmath>
#include <limits>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/index/search.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/reduce/scan.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

using detail::composed;
using detail::Packed;

// ---- scatter_extreme

void extreme_infer(InferCall& c) {
  const Spec &x = c.in[0], &index = c.in[1], &src = c.in[2];
  TD_CHECK(detail::is_index_dtype(index.dtype), DType,
           "an index must be int64 or int32, got {}\nConvert it with .to(int64).",
           to_string(index.dtype));
  TD_CHECK(src.dtype == x.dtype, DType, "x is {}, src is {}\nConvert one of them.",
           to_string(x.dtype), to_string(src.dtype));
  TD_CHECK(x.rank() > 0 && index.rank() == x.rank() && src.rank() == x.rank(), Shape,
           "x {}, index {} and src {} must have as many dimensions, at least one",
           x.shape.to_string(), index.shape.to_string(), src.shape.to_string());
  const int d = normalize_dim(c.get_attrs<ScatterExtremeAttrs>().dim, x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    const bool symbolic = index[i].is_symbolic() || x[i].is_symbolic() || src[i].is_symbolic();
    TD_CHECK(
        symbolic || ((i == d || index[i].raw() <= x[i].raw()) && index[i].raw() <= src[i].raw()),
        Shape, "index {} is larger than x {} or src {} in dimension {}", index.shape.to_string(),
        x.shape.to_string(), src.shape.to_string(), i);
  }
  c.out[0] = Spec(x.dtype, x.shape, x.device);
}

// src cropped to the shape of index.
Tensor cut_to(Tensor t, const Shape& shape, SourceLocation loc) {
  for (int i = 0; i < shape.rank(); ++i)
    if (!(t.shape(i) == shape[i])) t = narrow(std::move(t), i, 0, shape[i], loc);
  return t;
}
Tensor grown_to(const Tensor& t, const Shape& shape, SourceLocation loc) {
  if (t.shape() == shape) return t;
  PadAttrs p;
  for (int i = 0; i < shape.rank(); ++i) {
    p.before.push_back(0);
    p.after.push_back(shape[i] - t.shape(i));
  }
  return call(op::pad, &p, loc, t);
}

// The elements that are the extreme of their place share its gradient.
void extreme_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ScatterExtremeAttrs>();
  const SourceLocation loc = c.loc();
  const Tensor &x = c.in(0), &index = c.in(1), &g = c.grad();
  const Tensor y = c.out(0);
  const Tensor src = cut_to(c.in(2), index.shape(), loc);
  Tensor is_self = eq(x, y, loc).to(g.dtype(), loc);
  if (!a.include_self) {
    // A place that is written to keeps nothing of x; the others keep all of it.
    const Tensor none = zeros_like(src, g.dtype(), loc);
    is_self = scatter(ones_like(x, g.dtype(), loc), a.dim, index, none, loc);
  }
  const Tensor is_src = eq(src, gather(y, a.dim, index, loc), loc).to(g.dtype(), loc);
  // A NaN equals nothing: its place has no shares, and its gradient is NaN.
  const Tensor share = div(g, scatter_add(is_self, a.dim, index, is_src, loc), loc);
  if (c.needs(0)) c.results[0] = mul(is_self, share, loc);
  if (c.needs(2))
    c.results[2] = grown_to(mul(is_src, gather(share, a.dim, index, loc), loc), c.in_shape(2), loc);
}

void extreme_batch(BatchCall& c) {
  ScatterExtremeAttrs a = c.get_attrs<ScatterExtremeAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0)) + 1;
  c.out[0] = call(op::scatter_extreme, &a, c.node.loc, detail::with_batch(c, 0),
                  detail::with_batch(c, 1), detail::with_batch(c, 2));
}

}  // namespace

namespace op {
constinit const OpDef scatter_extreme =
    make_row("scatter_extreme", Family::index, Types::custom, {"x", "index", "src"},
             fields<ScatterExtremeAttrs>())
        .infer(extreme_infer)
        .vjp(extreme_vjp, 7, 1)
        .batch(extreme_batch)
        .reference(detail::run_scatter_extreme)
        .errors({"index {} is out of range< for x {x}, which has {x.dim} entries in dimension "
                 "{dim}>\nUse indices from 0< to {x.dim-1}>."})
        .doc(
            "x with the largest (smallest) of the elements of src written where gather would "
            "read.");
}  // namespace op

std::span<const OpDef* const> scatter_rows() {
  static constexpr const OpDef* kRows[] = {&op::scatter_extreme};
  return kRows;
}

namespace {

// Products of the elements of src by place, starting from ones of x's shape. In order of place, a
// running product restarts at each place; the last one of a place is its product.
Tensor scatter_products(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const int d = normalize_dim(dim, x.dim());
  const auto [place, order] = sort(index, d);
  const Tensor v = gather(cut_to(src, index.shape(), SourceLocation::here()), d, order);
  const int64_t n = index.size(d);
  if (n == 0) return ones_like(x);
  const Tensor equal = narrow(place, d, 1, n - 1) == narrow(place, d, 0, n - 1);
  Shape one = index.shape();
  one[d] = 1;
  const Tensor none = full(one, false);
  const Tensor same = cat({none, equal}, d), goes_on = cat({equal, none}, d);
  const Tensor run = linear_scan(where(same, v, 0.0), where(same, 0.0, v), d);
  const Tensor untouched = scatter(ones_like(x), d, place, zeros_like(v));
  return scatter_add(untouched, d, place, where(goes_on, 0.0, run));
}

Tensor scatter_reduce_of(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                         std::string_view reduce, bool include_self) {
  TD_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
               reduce == "amin",
           Value, "reduce '{}' must be sum, prod, mean, amax or amin", reduce);
  if (x.dim() == 0)
    return reshape(scatter_reduce_of(reshape(x, Shape(1)), dim, reshape(index, Shape(1)),
                                     reshape(src, Shape(1)), reduce, include_self),
                   Shape());
  if (reduce == "amax" || reduce == "amin") {
    ScatterExtremeAttrs a{dim, reduce == "amax", include_self};
    return call(op::scatter_extreme, &a, SourceLocation::here(), x, index, src);
  }
  const bool floating = is_floating(x.dtype());
  const double start = reduce == "prod" ? 1 : 0;
  Tensor base = x;
  if (!include_self)
    base = scatter(x, dim, index, full(Shape(), start, x.dtype()).expand(index.shape()));
  if (reduce == "prod") {
    if (floating) return base * scatter_products(x, dim, index, src);
    // Integers go through f64: exact up to 2^53.
    return (base.to(DType::f64) *
            scatter_products(x.to(DType::f64), dim, index, src.to(DType::f64)))
        .to(x.dtype());
  }
  const Tensor total = scatter_add(base, dim, index, src);
  if (reduce == "sum") return total;
  const Tensor one = ones_like(src, floating ? x.dtype() : DType::i64);
  const Tensor first = include_self ? ones_like(x, one.dtype()) : zeros_like(x, one.dtype());
  const Tensor count = clamp_min(scatter_add(first, dim, index, one), 1);
  return floating ? total / count : floor_divide(total, count).to(x.dtype());
}

}  // namespace

Tensor scatter_reduce(Tensor x, int64_t dim, const Tensor& index, Tensor src,
                      std::string_view reduce, bool include_self, SourceLocation loc) {
  return composed("scatter_reduce", loc, x,
                  [&] { return scatter_reduce_of(x, dim, index, src, reduce, include_self); });
}

Tensor index_reduce(Tensor x, int64_t dim, const Tensor& index, Tensor source,
                    std::string_view reduce, bool include_self, SourceLocation loc) {
  return composed("index_reduce", loc, x, [&] {
    TD_CHECK(index.dim() == 1 && source.dim() == x.dim() && x.dim() > 0, Shape,
             "expected a vector of indices and source {} with the dimensions of x {}",
             source.shape().to_string(), x.shape().to_string());
    const int d = normalize_dim(dim, x.dim());
    Shape s(1);
    while (s.rank() < x.dim()) s.push_back(1);
    s[d] = index.shape(0);
    return scatter_reduce_of(x, d, expand(reshape(index, s), source.shape()), source, reduce,
                             include_self);
  });
}

// ---- segments

namespace {

int64_t segment_count(const Tensor& ids, int64_t num_segments) {
  TD_CHECK(is_integral(ids.dtype()) && ids.dim() == 1, Shape,
           "segment_ids must be a vector of integers, got {}{}", to_string(ids.dtype()),
           ids.shape().to_string());
  if (num_segments >= 0) return num_segments;
  TD_CHECK(num_segments == -1, Value, "num_segments must not be negative, got {}", num_segments);
  TD_CHECK(detail::readable(ids), Unsupported,
           "the size of the result depends on values, which a trace does not have\n"
           "Give num_segments.");
  const int64_t n = ids.numel() ? max(ids).to(DType::i64).item<int64_t>() + 1 : 0;
  TD_CHECK(n >= 0 && n < int64_t{1} << 40, Value, "the largest segment is {}", n - 1);
  return n;
}

double nothing_of(std::string_view reduce, DType dtype) {
  if (reduce == "prod") return 1;
  if (reduce == "sum" || reduce == "mean") return 0;
  const bool largest = reduce == "amax";
  if (is_floating(dtype)) return largest ? -HUGE_VAL : HUGE_VAL;
  double least = 0, most = 0;
  visit_dtype(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) {
      least = static_cast<double>(std::numeric_limits<T>::min());
      most = static_cast<double>(std::numeric_limits<T>::max());
    }
  });
  return largest ? least : most;
}

Tensor segments_of(const Tensor& data, const Tensor& ids, int64_t n, std::string_view reduce) {
  TD_CHECK(data.dim() >= 1 && dims_equal(data.shape(0), ids.shape(0)), Shape,
           "data {} must have a row for each of {} segment ids", data.shape().to_string(),
           ids.shape(0).to_string());
  Shape out = data.shape(), column(ids.shape(0));
  out[0] = n;
  while (column.rank() < data.dim()) column.push_back(1);
  const Tensor start = expand(full(Shape(), nothing_of(reduce, data.dtype()), data.dtype()), out);
  if (reduce == "sum") return index_add(start, 0, ids, data);
  if (reduce == "mean") {
    const Tensor count =
        index_add(zeros(Shape(n), data.dtype()), 0, ids, ones(ids.shape(), data.dtype()));
    Shape s(n);
    while (s.rank() < data.dim()) s.push_back(1);
    return index_add(start, 0, ids, data) / reshape(count, s);
  }
  return scatter_reduce_of(start, 0, expand(reshape(ids, column), data.shape()), data, reduce,
                           true);
}

Tensor segment_call(const char* name, const Tensor& data, const Tensor& ids, int64_t n,
                    std::string_view reduce, SourceLocation loc) {
  return composed(name, loc, data, [&] {
    const int64_t count = segment_count(ids, n);
    return segments_of(data, ids, count, reduce);
  });
}

}  // namespace

Tensor segment_sum(const Tensor& data, const Tensor& ids, int64_t n, SourceLocation loc) {
  return segment_call("segment_sum", data, ids, n, "sum", loc);
}
Tensor segment_mean(const Tensor& data, const Tensor& ids, int64_t n, SourceLocation loc) {
  return segment_call("segment_mean", data, ids, n, "mean", loc);
}
Tensor segment_prod(const Tensor& data, const Tensor& ids, int64_t n, SourceLocation loc) {
  return segment_call("segment_prod", data, ids, n, "prod", loc);
}
Tensor segment_max(const Tensor& data, const Tensor& ids, int64_t n, SourceLocation loc) {
  return segment_call("segment_max", data, ids, n, "amax", loc);
}
Tensor segment_min(const Tensor& data, const Tensor& ids, int64_t n, SourceLocation loc) {
  return segment_call("segment_min", data, ids, n, "amin", loc);
}

Tensor segment_reduce(const Tensor& data, std::string_view reduce, const Tensor& lengths,
                      const Tensor& offsets, SourceLocation loc) {
  return composed("segment_reduce", loc, data, [&] {
    TD_CHECK(reduce == "sum" || reduce == "mean" || reduce == "max" || reduce == "min" ||
                 reduce == "prod",
             Value, "reduce '{}' must be sum, mean, max, min or prod", reduce);
    TD_CHECK(lengths.defined() != offsets.defined(), Value, "expected either lengths or offsets");
    const Tensor& given = lengths.defined() ? lengths : offsets;
    TD_CHECK(is_integral(given.dtype()) && given.dim() == 1, Shape,
             "lengths and offsets must be a vector of integers, got {}{}", to_string(given.dtype()),
             given.shape().to_string());
    TD_CHECK(data.dim() >= 1, Shape, "data must have a dimension");
    const int64_t n = given.size(0) - (lengths.defined() ? 0 : 1);
    TD_CHECK(n >= 0, Value, "offsets must have at least one number");
    // Where each segment ends.
    const Tensor ends =
        lengths.defined() ? cumsum(given, 0) : narrow(given, 0, 1, n).to(DType::i64);
    if (!ends.is_symbolic() && n > 0 && !data.shape(0).is_symbolic()) {
      const int64_t end = select(ends, 0, -1).item<int64_t>();
      TD_CHECK(end == data.size(0), Value, "the segments end at {}, data has {} rows", end,
               data.size(0));
    }
    const Tensor ids = searchsorted(ends, arange_dim(data.shape(0)), false, true);
    const std::string_view name = reduce == "max" ? "amax" : reduce == "min" ? "amin" : reduce;
    return segments_of(data, ids, n, name);
  });
}

// ---- flat positions and masks

Tensor take(const Tensor& x, const Tensor& index, SourceLocation loc) {
  return composed("take", loc, x,
                  [&] { return tandem::index(reshape(x, Shape(-1)), TensorIndex(index)); });
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate,
           SourceLocation loc) {
  return composed("put", loc, x, [&] {
    TD_CHECK(dims_equal(index.numel(), source.numel()), Shape,
             "index {} and source {} must have as many elements", index.shape().to_string(),
             source.shape().to_string());
    const Tensor flat = index_put(reshape(x, Shape(-1)), TensorIndex(reshape(index, Shape(-1))),
                                  reshape(source, Shape(-1)), accumulate);
    return reshape(flat, x.shape());
  });
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source,
                      SourceLocation loc) {
  return composed("masked_scatter", loc, x, [&] {
    TD_CHECK(mask.dtype() == DType::b8, DType, "mask must be bool, got {}",
             to_string(mask.dtype()));
    TD_CHECK(source.dtype() == x.dtype(), DType, "x is {}, source is {}\nConvert one of them.",
             to_string(x.dtype()), to_string(source.dtype()));
    const Shape shape = broadcast_shapes(x.shape(), mask.shape());
    const Tensor wide = reshape(expand(mask, shape), Shape(-1));
    if (source.shape().numel() == Dim(0)) {
      TD_CHECK(mask.is_symbolic() || !any(mask).item<bool>(), Value,
               "source is empty, and the mask is not");
      return expand(x, shape);
    }
    // The index of the element of source that each true element gets.
    const Tensor at = clamp_min(cumsum(wide, 0) - 1, 0);
    const Tensor picked = index_select(reshape(source, Shape(-1)), 0, at);
    return where(reshape(wide, shape), reshape(picked, shape), expand(x, shape));
  });
}

}  // namespace tandem
