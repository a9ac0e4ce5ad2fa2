// SPDX-License-Identifier: Apache-2.0
// The view functions: they normalise arguments (ends of a slice, negative indices) and call a row.
// Sizes may be symbolic; only numbers can be checked here.
#include "tandem/ops/view/view.h"

#include "tandem/ops/function_internal.h"

namespace tandem {

using detail::named;
using detail::placed;

namespace {

// The row behind reshape, view and their kin; an error names the one that was called.
Tensor shaped(const char* name, Tensor x, const Shape& shape, SourceLocation loc) {
  if (x.defined() && x.shape() == shape) return x;
  return named(name, loc, [&] { return detail::call_view(std::move(x), shape, loc); });
}

}  // namespace

Tensor reshape(Tensor x, Shape shape, SourceLocation loc) {
  return shaped("reshape", std::move(x), shape, loc);
}

Tensor view(Tensor x, Shape shape, SourceLocation loc) {
  return shaped("view", std::move(x), shape, loc);
}

Tensor flatten(Tensor x, int64_t start_dim, int64_t end_dim, SourceLocation loc) {
  const Shape out = placed("flatten", loc, [&] {
    const Shape& s = x.shape();
    if (s.rank() == 0) return Shape(1);
    const int a = normalize_dim(start_dim, s.rank()), b = normalize_dim(end_dim, s.rank());
    TD_CHECK(a <= b, Value, "start_dim {} comes after end_dim {}", start_dim, end_dim);
    Shape out;
    for (int i = 0; i < s.rank(); ++i) {
      if (i <= a || i > b)
        out.push_back(s[i]);
      else
        out[a] = out[a] * s[i];
    }
    return out;
  });
  return reshape(std::move(x), out, loc);
}

Tensor unflatten(Tensor x, int64_t dim, Shape sizes, SourceLocation loc) {
  const Shape out = placed("unflatten", loc, [&] {
    const Shape& s = x.shape();
    const int d = normalize_dim(dim, s.rank());
    int missing = -1;
    Dim known = 1;
    for (int i = 0; i < sizes.rank(); ++i) {
      if (sizes[i] == Dim(-1)) {
        TD_CHECK(missing < 0, Shape, "sizes {} have two -1, one is allowed", sizes.to_string());
        missing = i;
      } else {
        known = known * sizes[i];
      }
    }
    if (missing >= 0 && !(known == Dim(0))) {
      sizes[missing] = floordiv(s[d], known);
      known = known * sizes[missing];
    }
    TD_CHECK(dims_equal(known, s[d]), Shape,
             "sizes {} do not make dimension {} of x {}: their product is not {}",
             sizes.to_string(), d, s.to_string(), s[d].to_string());
    Shape out;
    for (int i = 0; i < s.rank(); ++i) {
      if (i != d) out.push_back(s[i]);
      for (int k = 0; i == d && k < sizes.rank(); ++k) out.push_back(sizes[k]);
    }
    return out;
  });
  return reshape(std::move(x), out, loc);
}

Tensor permute(Tensor x, IntList dims, SourceLocation loc) {
  PermuteAttrs a{dims};
  return call(op::permute, &a, loc, std::move(x));
}

Tensor transpose(Tensor x, int64_t dim0, int64_t dim1, SourceLocation loc) {
  PermuteAttrs a;
  const bool same = placed("transpose", loc, [&] {
    const int rank = x.shape().rank();
    if (rank == 0 && dim0 >= -1 && dim0 <= 0 && dim1 >= -1 && dim1 <= 0) return true;
    const int i = normalize_dim(dim0, rank), k = normalize_dim(dim1, rank);
    for (int d = 0; d < rank; ++d) a.dims.push_back(d == i ? k : d == k ? i : d);
    return i == k;
  });
  return same ? x : call(op::permute, &a, loc, std::move(x));
}

Tensor t(Tensor x, SourceLocation loc) {
  const int rank = placed("t", loc, [&] {
    TD_CHECK(x.dim() <= 2, Shape, "expected at most 2 dimensions, x is {}\nUse transpose(x, a, b).",
             x.shape().to_string());
    return x.dim();
  });
  return rank < 2 ? x : transpose(std::move(x), 0, 1, loc);
}

Tensor movedim(Tensor x, IntList source, IntList destination, SourceLocation loc) {
  PermuteAttrs a;
  placed("movedim", loc, [&] {
    const int rank = x.shape().rank();
    TD_CHECK(source.rank() == destination.rank(), Value,
             "source {} and destination {} must be equally long", source.to_string(),
             destination.to_string());
    if (source.empty()) {
      for (int i = 0; i < rank; ++i) a.dims.push_back(i);
      return;
    }
    const IntList from = normalize_dims(source, rank), to = normalize_dims(destination, rank);
    bool moved[kMaxRank] = {};
    a.dims.resize(rank);
    for (Dim& d : a.dims) d = -1;
    for (int i = 0; i < from.rank(); ++i) {
      a.dims[static_cast<int>(to[i].raw())] = from[i];
      moved[from[i].raw()] = true;
    }
    for (int o = 0, i = 0; o < rank; ++o) {
      if (!(a.dims[o] == Dim(-1))) continue;
      while (moved[i]) ++i;
      a.dims[o] = i++;
    }
  });
  return call(op::permute, &a, loc, std::move(x));
}

Tensor squeeze(Tensor x, SourceLocation loc) {
  const Shape out = placed("squeeze", loc, [&] {
    Shape out;
    for (Dim d : x.shape())
      if (!(d == Dim(1))) out.push_back(d);
    return out;
  });
  return reshape(std::move(x), out, loc);
}

Tensor squeeze(Tensor x, int64_t dim, SourceLocation loc) {
  return squeeze(std::move(x), IntList(dim), loc);
}

Tensor squeeze(Tensor x, IntList dims, SourceLocation loc) {
  const Shape out = placed("squeeze", loc, [&] {
    const Shape& s = x.shape();
    if (s.rank() == 0) {
      for (Dim d : dims) normalize_dim(d.value(), 1);
      return s;
    }
    if (dims.empty()) return s;
    bool drop[kMaxRank] = {};
    for (Dim d : normalize_dims(dims, s.rank()))
      drop[d.raw()] = s[static_cast<int>(d.raw())] == Dim(1);
    Shape out;
    for (int i = 0; i < s.rank(); ++i)
      if (!drop[i]) out.push_back(s[i]);
    return out;
  });
  return reshape(std::move(x), out, loc);
}

Tensor unsqueeze(Tensor x, int64_t dim, SourceLocation loc) {
  const Shape out = placed("unsqueeze", loc, [&] {
    Shape s = x.shape();
    s.insert(normalize_dim(dim, s.rank() + 1), 1);
    return s;
  });
  return reshape(std::move(x), out, loc);
}

Tensor expand(Tensor x, Shape shape, SourceLocation loc) {
  if (x.defined() && x.shape() == shape) return x;
  ShapeAttrs a{shape};
  return call(op::expand, &a, loc, std::move(x));
}

Tensor expand_as(Tensor x, const Tensor& other, SourceLocation loc) {
  return named("expand_as", loc, [&] { return expand(std::move(x), other.shape(), loc); });
}

Tensor broadcast_to(Tensor x, Shape shape, SourceLocation loc) {
  return named("broadcast_to", loc, [&] { return expand(std::move(x), shape, loc); });
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs, SourceLocation loc) {
  const Shape common = placed("broadcast_tensors", loc, [&] {
    Shape s;
    for (const Tensor& x : xs) s = broadcast_shapes(s, x.shape());
    return s;
  });
  std::vector<Tensor> out;
  for (const Tensor& x : xs) out.push_back(expand(x, common, loc));
  return out;
}

namespace {

Tensor slice_range(Tensor x, int64_t dim, Dim start, Dim length, Dim step, SourceLocation loc) {
  if (start == Dim(0) && step == Dim(1) && length == x.shape(dim)) return x;
  SliceAttrs a{dim, IntList(start, length, step)};
  return call(op::slice, &a, loc, std::move(x));
}

// As x.shape(dim), whose error would name another function than the one that is called.
Dim size_along(const Tensor& x, int64_t dim) {
  return x.shape()[normalize_dim(dim, x.shape().rank())];
}

}  // namespace

Tensor slice(Tensor x, int64_t dim, int64_t start, int64_t end, int64_t step, SourceLocation loc) {
  Dim first, length;
  placed("slice", loc, [&] {
    const Dim n = size_along(x, dim);
    TD_CHECK(step > 0, Value, "step must be positive, got {}\nUse flip() to go backwards.", step);
    first = detail::slice_end(start, n);
    const Dim last = detail::slice_end(end, n);
    length = detail::slice_length(first == Dim(0) ? last : max(last - first, Dim(0)), step);
  });
  return slice_range(std::move(x), dim, first, length, step, loc);
}

Tensor narrow(Tensor x, int64_t dim, Dim start, Dim length, SourceLocation loc) {
  placed("narrow", loc, [&] {
    const Dim n = size_along(x, dim);
    if (!start.is_symbolic() && start.raw() < 0) start = n + start;
    if (n.is_symbolic() || start.is_symbolic() || length.is_symbolic()) return;
    TD_CHECK(length.raw() >= 0, Value, "length must not be negative, got {}", length.raw());
    TD_CHECK(start.raw() >= 0 && start.raw() <= n.raw() && length.raw() <= n.raw() - start.raw(),
             Index, "{} elements from {} go past dimension {} of x {}", length.raw(), start.raw(),
             dim, x.shape().to_string());
  });
  return slice_range(std::move(x), dim, start, length, 1, loc);
}

Tensor select(Tensor x, int64_t dim, int64_t index, SourceLocation loc) {
  SelectAttrs a;
  placed("select", loc, [&] {
    a.dim = normalize_dim(dim, x.shape().rank());
    const Dim n = x.shape(a.dim);
    TD_CHECK(n.is_symbolic() || (index >= -n.raw() && index < n.raw()), Index,
             "index {} is out of range for dimension {} of size {}, x is {}", index, a.dim,
             n.to_string(), x.shape().to_string());
    a.index = IntList(index < 0 ? n + Dim(index) : Dim(index));
  });
  return call(op::select, &a, loc, std::move(x));
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim, SourceLocation loc) {
  std::vector<int64_t> sizes;
  placed("split", loc, [&] {
    const int64_t n = x.size(normalize_dim(dim, x.dim()));
    TD_CHECK(size > 0 || (size == 0 && n == 0), Value,
             "the size of a piece must be positive, got {}", size);
    for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
    if (n == 0) sizes.push_back(0);
  });
  return split(x, sizes, dim, loc);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim,
                          SourceLocation loc) {
  placed("split", loc, [&] {
    const Dim n = size_along(x, dim);
    Dim sum = 0;
    for (int64_t s : sizes) {
      TD_CHECK(s >= 0, Value, "sizes must not be negative, got {}", s);
      sum = sum + Dim(s);
    }
    TD_CHECK(dims_equal(sum, n), Shape, "sizes add up to {}, dimension {} of x {} is {}",
             sum.to_string(), dim, x.shape().to_string(), n.to_string());
  });
  std::vector<Tensor> out;
  int64_t at = 0;
  for (int64_t s : sizes) {
    out.push_back(narrow(x, dim, at, s, loc));
    at += s;
  }
  return out;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim, SourceLocation loc) {
  int64_t size = 0, n = 0;
  placed("chunk", loc, [&] {
    TD_CHECK(chunks > 0, Value, "expected at least one chunk, got {}", chunks);
    n = x.size(normalize_dim(dim, x.dim()));
    size = n / chunks + (n % chunks != 0);
  });
  if (n > 0) return split(x, size, dim, loc);
  return split(x, std::vector<int64_t>(static_cast<size_t>(std::min<int64_t>(chunks, 1 << 20)), 0),
               dim, loc);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim, SourceLocation loc) {
  const int64_t n = placed("unbind", loc, [&] { return x.size(normalize_dim(dim, x.dim())); });
  std::vector<Tensor> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(select(x, dim, i, loc));
  return out;
}

Tensor diagonal(Tensor x, int64_t offset, int64_t dim1, int64_t dim2, SourceLocation loc) {
  DiagonalAttrs a{offset, dim1, dim2, {}};
  return call(op::diagonal, &a, loc, std::move(x));
}

Tensor unfold(Tensor x, int64_t dim, int64_t size, int64_t step, SourceLocation loc) {
  UnfoldAttrs a{dim, size, step, {}};
  return call(op::unfold, &a, loc, std::move(x));
}

}  // namespace tandem
