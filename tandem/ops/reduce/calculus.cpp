// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/reduce/calculus.h"

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;

// Elements from .. from + n - |less| of `dim`.
Tensor from(const Tensor& x, int d, int64_t start, int64_t less) {
  return narrow(x, d, start, x.shape(d) - Dim(less));
}
void check_samples(const Tensor& y, int d, int64_t least) {
  TD_CHECK(y.shape(d).is_symbolic() || y.shape(d).raw() >= least, Shape,
           "expected at least {} samples along dimension {}, y is {}", least, d,
           y.shape().to_string());
}

// Twice the mean of neighbours.
Tensor pair_sums(const Tensor& y, int d) { return from(y, d, 1, 1) + from(y, d, 0, 1); }

// Distances of neighbouring coordinates; a vector belongs to dimension `d` of y.
Tensor distances(const Tensor& y, const Tensor& x, int d) {
  Tensor at = x;
  if (x.dim() == 1) {
    TD_CHECK(dims_equal(x.shape(0), y.shape(d)), Shape,
             "x has {} coordinates, dimension {} of y {} has another size", x.shape().to_string(),
             d, y.shape().to_string());
    Shape s;
    for (int i = 0; i < y.dim(); ++i) s.push_back(i == d ? x.shape(0) : Dim(1));
    at = reshape(x, s);
  }
  while (at.dim() < y.dim()) at = unsqueeze(at, 0);
  return from(at, d, 1, 1) - from(at, d, 0, 1);
}

template <class F>
Tensor integral(const char* name, const Tensor& y, int64_t dim, SourceLocation loc, F&& f) {
  return composed(name, loc, y, [&] {
    const int d = normalize_dim(dim, y.dim());
    check_samples(y, d, 1);
    return f(d);
  });
}

// a * x[start - 1 ..] + b * x[start ..] + ...: neighbours with their factors, n - 2 of each.
Tensor edge(const Tensor& x, int d, int64_t at, std::initializer_list<Tensor> factors) {
  Tensor y;
  for (const Tensor& factor : factors) {
    const Tensor term = narrow(x, d, at++, 1) * factor;
    y = y.defined() ? y + term : term;
  }
  return y;
}

// The derivative along `d` for distances h [.., n - 1, ..] (broadcast along the other dimensions).
Tensor derivative(const Tensor& x, const Tensor& h, int d, int64_t order) {
  TD_CHECK(order == 1 || order == 2, Value, "edge_order is {}, expected 1 or 2", order);
  check_samples(x, d, order + 1);
  const int64_t n = x.size(d);
  const auto at = [&](int64_t i) { return narrow(h, d, i, 1); };
  Tensor first, last;
  if (order == 1) {
    first = (narrow(x, d, 1, 1) - narrow(x, d, 0, 1)) / at(0);
    last = (narrow(x, d, n - 1, 1) - narrow(x, d, n - 2, 1)) / at(n - 2);
  } else {
    const Tensor p = at(0), q = at(1), r = at(n - 3), s = at(n - 2);
    first = edge(x, d, 0, {-(2.0 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q))});
    last =
        edge(x, d, n - 3, {s / (r * (r + s)), -(s + r) / (r * s), (2.0 * s + r) / (s * (r + s))});
  }
  if (n == 2) return cat({first, last}, d);
  const Tensor left = from(h, d, 0, 1), right = from(h, d, 1, 1);
  const Tensor inner = narrow(x, d, 0, n - 2) * (-right / (left * (left + right))) +
                       narrow(x, d, 1, n - 2) * ((right - left) / (left * right)) +
                       narrow(x, d, 2, n - 2) * (left / (right * (left + right)));
  return cat({first, inner, last}, d);
}

// Calls f(dimension, its place in the list) for each dim, or for all.
template <class F>
std::vector<Tensor> each_dim(const Tensor& x, const IntList& dim, size_t given, F&& f) {
  std::vector<Tensor> out;
  const int count = dim.empty() ? x.dim() : dim.rank();
  TD_CHECK(given == 0 || given == static_cast<size_t>(count), Value,
           "{} spacings for {} dimensions", given, count);
  for (int i = 0; i < count; ++i)
    out.push_back(
        f(dim.empty() ? i : normalize_dim(dim[i].value(), x.dim()), static_cast<size_t>(i)));
  return out;
}

Tensor equal_distances(const Tensor& x, int d, double spacing) {
  Shape s;
  for (int i = 0; i < x.dim(); ++i) s.push_back(i == d ? x.shape(d) - Dim(1) : Dim(1));
  return full(s, spacing, is_floating(x.dtype()) ? x.dtype() : DType::f32);
}

}  // namespace

Tensor trapezoid(const Tensor& y, double dx, int64_t dim, SourceLocation loc) {
  return integral("trapezoid", y, dim, loc,
                  [&](int d) { return sum(pair_sums(y, d), {d}) * (0.5 * dx); });
}
Tensor trapezoid(const Tensor& y, const Tensor& x, int64_t dim, SourceLocation loc) {
  return integral("trapezoid", y, dim, loc,
                  [&](int d) { return sum(pair_sums(y, d) * distances(y, x, d), {d}) * 0.5; });
}
Tensor cumulative_trapezoid(const Tensor& y, double dx, int64_t dim, SourceLocation loc) {
  return integral("cumulative_trapezoid", y, dim, loc,
                  [&](int d) { return cumsum(pair_sums(y, d), d) * (0.5 * dx); });
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int64_t dim, SourceLocation loc) {
  return integral("cumulative_trapezoid", y, dim, loc,
                  [&](int d) { return cumsum(pair_sums(y, d) * distances(y, x, d), d) * 0.5; });
}

std::vector<Tensor> gradient(const Tensor& x, double spacing, IntList dim, int64_t edge_order,
                             SourceLocation loc) {
  return composed("gradient", loc, x, [&] {
    return each_dim(x, dim, 0, [&](int d, size_t) {
      return derivative(x, equal_distances(x, d, spacing), d, edge_order);
    });
  });
}
std::vector<Tensor> gradient(const Tensor& x, const std::vector<double>& spacing, IntList dim,
                             int64_t edge_order, SourceLocation loc) {
  return composed("gradient", loc, x, [&] {
    return each_dim(x, dim, spacing.size(), [&](int d, size_t i) {
      return derivative(x, equal_distances(x, d, spacing[i]), d, edge_order);
    });
  });
}
std::vector<Tensor> gradient(const Tensor& x, const std::vector<Tensor>& coordinates, IntList dim,
                             int64_t edge_order, SourceLocation loc) {
  return composed("gradient", loc, x, [&] {
    return each_dim(x, dim, coordinates.size(), [&](int d, size_t i) {
      return derivative(x, distances(x, coordinates[i], d), d, edge_order);
    });
  });
}

Tensor dist(const Tensor& a, const Tensor& b, double p, SourceLocation loc) {
  return composed("dist", loc, a, [&] { return norm(a - b, p); });
}

HistogramddResult histogramdd(const Tensor& x, IntList bins, const std::vector<double>& range,
                              const Tensor& weight, bool density, SourceLocation loc) {
  return composed("histogramdd", loc, x, [&] {
    TD_CHECK(x.dim() >= 2 && is_floating(x.dtype()), Shape,
             "expected floating points [..., d], got {}{}", to_string(x.dtype()),
             x.shape().to_string());
    const int64_t d = x.size(-1);
    TD_CHECK(bins.rank() == 1 || bins.rank() == d, Value, "{} numbers of bins for {} dimensions",
             bins.rank(), d);
    TD_CHECK(range.empty() || static_cast<int64_t>(range.size()) == 2 * d, Value,
             "the range has {} numbers, expected two for each of {} dimensions", range.size(), d);
    const Tensor points = reshape(x.detach(), Shape(-1, d));
    const Tensor w = weight.defined() ? reshape(weight, Shape(-1)).to(x.dtype())
                                      : ones_like(select(points, 1, 0));
    HistogramddResult r;
    Shape sizes;
    Tensor inside = ones(w.shape(), DType::b8), place = zeros(w.shape(), DType::i64);
    Tensor volume = ones({}, x.dtype());
    for (int64_t i = 0; i < d; ++i) {
      const int64_t n = bins[bins.rank() == 1 ? 0 : static_cast<int>(i)].value();
      TD_CHECK(n > 0 && n < int64_t{1} << 40, Value, "bins must be positive, got {}", n);
      const auto at = static_cast<size_t>(2 * i);
      const Tensor c = select(points, 1, i);
      Tensor low = range.empty() ? amin(c) : full({}, range[at], x.dtype());
      Tensor high = range.empty() ? amax(c) : full({}, range[at + 1], x.dtype());
      const Tensor empty = low == high;
      low = where(empty, low - 0.5, low);
      high = where(empty, high + 0.5, high);
      const Tensor fits = logical_and(c >= low, c <= high);
      const Tensor bin = floor((where(fits, c, low) - low) / (high - low) * static_cast<double>(n));
      inside = logical_and(inside, fits);
      place = place * n + clamp(bin, 0.0, static_cast<double>(n - 1)).to(DType::i64);
      volume = volume * (high - low) / static_cast<double>(n);
      r.bin_edges.push_back(lerp(low, high, arange(n + 1).to(x.dtype()) / static_cast<double>(n)));
      sizes.push_back(n);
    }
    const Tensor counts =
        index_add(zeros(Shape(sizes.numel()), x.dtype()), 0, place, where(inside, w, 0.0));
    r.hist = reshape(density ? counts / (sum(counts) * volume) : counts, sizes);
    return r;
  });
}

}  // namespace tandem
