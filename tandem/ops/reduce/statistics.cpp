// SPDX-License-Identifier: Apache-2.0
// Order statistics; histograms by scatter-adding.
#include "tandem/ops/reduce/statistics.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/check_numerics.h"
#include "tandem/ops/control.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/order_statistics_internal.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/reduce/scan.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;

ValuesAndIndices dropped(Tensor values, Tensor indices, int d, bool keepdim) {
  if (keepdim) return {std::move(values), std::move(indices)};
  return {squeeze(std::move(values), d), squeeze(std::move(indices), d)};
}
// Treats a 0-d x as [n].
template <class F>
ValuesAndIndices along(const char* name, const Tensor& x, int64_t dim, bool keepdim,
                       SourceLocation loc, F&& f) {
  return composed(name, loc, x, [&]() -> ValuesAndIndices {
    if (x.dim() == 0) {
      normalize_dim(dim, 1);
      const auto r = f(reshape(x, Shape(1)), 0);
      return {reshape(r.values, Shape()), reshape(r.indices, Shape())};
    }
    const int d = normalize_dim(dim, x.dim());
    TD_CHECK(!(x.shape(d) == Dim(0)), Shape, "dimension {} of x {} is empty", d,
             x.shape().to_string());
    const auto [values, indices] = f(x, d);
    return dropped(values, indices, d, keepdim);
  });
}

// The element of rank `at` (a tensor with 1 in place of the dim) of the sorted lines.
ValuesAndIndices pick(const ValuesAndIndices& sorted, const Tensor& at, int d) {
  return {gather(sorted.values, d, at), gather(sorted.indices, d, at)};
}
Tensor nan_count(const Tensor& x, int d) { return sum(isnan(x), {d}, true); }

ValuesAndIndices of_rank(const Tensor& x, int d, Rank rank, int64_t k = 0) {
  const KthvalueAttrs a{d, k, static_cast<int64_t>(rank)};
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(x, SourceLocation::here())};
  apply(op::kthvalue, &a, in, out, SourceLocation::here());
  return {std::move(out[0]), std::move(out[1])};
}

// All elements that equal the median share its gradient evenly.
struct SharedGradient : VjpClosure {
  std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor> y,
                               std::span<const Tensor> g) override {
    const Tensor hit = where(isnan(y[0]), isnan(x[0]), x[0] == y[0]).to(x[0].dtype());
    return {hit * (g[0] / sum(hit))};
  }
};

Tensor median_of_all(const Tensor& x, Rank rank) {
  const Tensor flat = reshape(x, Shape(-1));
  if (flat.shape(0) == Dim(0)) {
    TD_CHECK(is_floating(x.dtype()), Value, "x {} of {} has no elements, and no NaN to say so",
             x.shape().to_string(), to_string(x.dtype()));
    return sum(flat) + std::nan("");
  }
  Tensor y;
  {
    NoGradGuard no_grad;
    y = squeeze(of_rank(flat, 0, rank).values, 0);
  }
  if (!is_floating(x.dtype()) || !(is_tracing() || (is_grad_enabled() && x.requires_grad())))
    return y;
  return with_vjp({&flat, 1}, {&y, 1}, make_ref<SharedGradient>())[0];
}

}  // namespace

ValuesAndIndices kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim,
                          SourceLocation loc) {
  return along("kthvalue", x, dim, keepdim, loc, [&](const Tensor& t, int d) -> ValuesAndIndices {
    TD_CHECK(k >= 1 && k <= t.size(d), Value, "k must be in 1..{}, got {}", t.size(d), k);
    return of_rank(t, d, Rank::kth, k);
  });
}

Tensor median(const Tensor& x, SourceLocation loc) {
  return composed("median", loc, x, [&] { return median_of_all(x, Rank::median); });
}
ValuesAndIndices median(const Tensor& x, int64_t dim, bool keepdim, SourceLocation loc) {
  return along("median", x, dim, keepdim, loc,
               [&](const Tensor& t, int d) { return of_rank(t, d, Rank::median); });
}
Tensor nanmedian(const Tensor& x, SourceLocation loc) {
  return composed("nanmedian", loc, x, [&] { return median_of_all(x, Rank::nanmedian); });
}
ValuesAndIndices nanmedian(const Tensor& x, int64_t dim, bool keepdim, SourceLocation loc) {
  return along("nanmedian", x, dim, keepdim, loc,
               [&](const Tensor& t, int d) { return of_rank(t, d, Rank::nanmedian); });
}

ValuesAndIndices mode(const Tensor& x, int64_t dim, bool keepdim, SourceLocation loc) {
  return along("mode", x, dim, keepdim, loc, [&](const Tensor& t, int d) {
    const auto sorted = sort(t, d);
    const int64_t n = t.size(d);
    // Length of the current run of equal values; the first place where the longest one ends.
    const Tensor left = narrow(sorted.values, d, 0, n - 1),
                 right = narrow(sorted.values, d, 1, n - 1);
    Shape one = t.shape();
    one[d] = 1;
    const Tensor same = cat({zeros(one, DType::f64), (left == right).to(DType::f64)}, d);
    const Tensor run = linear_scan(same, ones({1}, DType::f64), d);
    return pick(sorted, argmax(run, d, true), d);
  });
}

namespace {

enum class Interpolation { linear, lower, higher, nearest, midpoint };
Interpolation interpolation_named(std::string_view name) {
  constexpr std::string_view kNames[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  for (int i = 0; i < 5; ++i)
    if (kNames[i] == name) return static_cast<Interpolation>(i);
  TD_CHECK(false, Value, "interpolation '{}' must be linear, lower, higher, nearest or midpoint",
           name);
  return {};
}

Tensor quantile_of(const char* name, const Tensor& x, const Operand& q, std::optional<int64_t> dim,
                   bool keepdim, std::string_view interpolation, bool skip_nan,
                   SourceLocation loc) {
  return composed(name, loc, x, [&] {
    TD_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, DType,
             "x is {}, expected float32 or float64", to_string(x.dtype()));
    const Interpolation how = interpolation_named(interpolation);
    Tensor at = q.is_scalar() ? full(Shape(), q.scalar().to_double(), x.dtype())
                              : q.tensor().detach().to(x.dtype());
    TD_CHECK(at.dim() <= 1, Shape, "q must be a number or a vector, got shape {}",
             at.shape().to_string());
    if (!at.is_symbolic())
      for (double v : at.to_vector<double>())
        TD_CHECK(v >= 0 && v <= 1, Value, "q must be in 0..1, got {}", v);
    const int d = dim ? normalize_dim(*dim, x.dim() ? x.dim() : 1) : 0;
    const Tensor lines = dim && x.dim() ? movedim(x, d, -1) : reshape(x, Shape(-1));
    const int last = lines.dim() - 1;
    const int64_t n = lines.size(last);
    TD_CHECK(n > 0, Shape, "x {} has no elements to choose from", x.shape().to_string());
    const Tensor sorted = sort(lines, last).values;
    const Tensor nans = nan_count(lines, last);
    const Tensor top = skip_nan ? clamp_min((n - 1) - nans, 0).to(x.dtype())
                                : full(Shape(1), static_cast<double>(n - 1), x.dtype());
    // Ranks [..., number of q's].
    Tensor rank = top * reshape(at, Shape(-1));
    Shape wide = lines.shape();
    wide[last] = rank.shape(-1);
    rank = expand(rank, wide);
    if (how == Interpolation::lower) rank = floor(rank);
    if (how == Interpolation::higher) rank = ceil(rank);
    if (how == Interpolation::nearest) rank = round(rank);
    const Tensor below = floor(rank), above = ceil(rank);
    Tensor y = gather(sorted, last, below.to(DType::i64));
    if (how == Interpolation::linear || how == Interpolation::midpoint) {
      const Tensor upper = gather(sorted, last, above.to(DType::i64));
      const Tensor part = how == Interpolation::linear ? rank - below : (above - below) * 0.5;
      y = lerp(y, upper, part);
    }
    if (!skip_nan) y = where(nans > 0, std::nan(""), y);
    // The q's first; then the dims of x without `dim`, or with 1 in its place.
    y = movedim(y, -1, 0);
    Shape shape;
    if (at.dim() == 1) shape.push_back(at.shape(0));
    for (int i = 0; i < x.dim(); ++i) {
      const bool reduced = !dim || i == d;
      if (reduced && keepdim) shape.push_back(1);
      if (!reduced) shape.push_back(x.shape(i));
    }
    return reshape(y, shape);
  });
}

}  // namespace

Tensor quantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation, SourceLocation loc) {
  return quantile_of("quantile", x, q, dim, keepdim, interpolation, false, loc);
}
Tensor nanquantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation, SourceLocation loc) {
  return quantile_of("nanquantile", x, q, dim, keepdim, interpolation, true, loc);
}

Tensor msort(const Tensor& x, SourceLocation loc) {
  return composed("msort", loc, x, [&] { return x.dim() ? sort(x, 0).values : x; });
}

Tensor nanmean(const Tensor& x, IntList dims, bool keepdim, SourceLocation loc) {
  return composed("nanmean", loc, x, [&] {
    TD_CHECK(is_floating(x.dtype()), DType, "x is {}, expected a floating dtype",
             to_string(x.dtype()));
    const Tensor count = sum(logical_not(isnan(x)), dims, keepdim);
    return nansum(x, dims, keepdim) / count;
  });
}

// ---- histograms

namespace {

struct Range {
  Tensor low, high;
};
constexpr const char* kNoRange =
    "the smallest or the largest element is not a finite number: give the range";
// 0-d tensors; an empty range is extended by one half or one on both sides.
Range range_of(const Tensor& x, double low, double high, bool from_data, double grow) {
  Range r{full(Shape(), low, x.dtype()), full(Shape(), high, x.dtype())};
  if (from_data && !(x.shape(0) == Dim(0)))
    r = Range{check_numerics(amin(x), kNoRange), check_numerics(amax(x), kNoRange)};
  const Tensor empty = r.low == r.high;
  return {where(empty, r.low - grow, r.low), where(empty, r.high + grow, r.high)};
}

// Sums the weights by the bin of each element; elements outside are dropped.
Tensor fill_bins(const Tensor& x, const Range& r, const Tensor& weight, int64_t bins) {
  const Tensor inside = logical_and(x >= r.low, x <= r.high);
  const Tensor place = floor((x - r.low) / (r.high - r.low) * static_cast<double>(bins));
  Tensor at = clamp(where(inside, place, 0.0), 0.0, static_cast<double>(bins - 1));
  return index_add(zeros(Shape(bins), weight.dtype()), 0, at.to(DType::i64),
                   where(inside, weight, 0.0));
}

void check_histogram(const Tensor& x, int64_t bins, double low, double high) {
  TD_CHECK(is_floating(x.dtype()), DType, "x is {}, expected a floating dtype",
           to_string(x.dtype()));
  TD_CHECK(bins > 0 && bins < int64_t{1} << 40, Value, "bins must be positive, got {}", bins);
  TD_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, Value,
           "the range {}..{} must be finite and increasing", low, high);
}

}  // namespace

Tensor histc(const Tensor& x, int64_t bins, double min, double max, SourceLocation loc) {
  return composed("histc", loc, x, [&] {
    check_histogram(x, bins, min, max);
    const Tensor flat = reshape(x.detach(), Shape(-1));
    return fill_bins(flat, range_of(flat, min, max, min == max, 1), ones_like(flat), bins);
  });
}

HistogramResult histogram(const Tensor& x, int64_t bins,
                          std::optional<std::pair<double, double>> range, const Tensor& weight,
                          bool density, SourceLocation loc) {
  return composed("histogram", loc, x, [&]() -> HistogramResult {
    const auto [low, high] = range.value_or(std::pair<double, double>(0, 0));
    check_histogram(x, bins, low, high);
    const Tensor flat = reshape(x.detach(), Shape(-1));
    TD_CHECK(!weight.defined() || dims_equal(weight.numel(), flat.numel()), Shape,
             "x is {}, weight {}", x.shape().to_string(),
             weight.defined() ? weight.shape().to_string() : "");
    const Range r = range_of(flat, low, high, !range, 0.5);
    const Tensor w = weight.defined() ? reshape(weight, Shape(-1)).to(x.dtype()) : ones_like(flat);
    Tensor counts = fill_bins(flat, r, w, bins);
    const Tensor step = arange(bins + 1).to(x.dtype()) / static_cast<double>(bins);
    if (density) counts = counts / (sum(counts) * (r.high - r.low) / static_cast<double>(bins));
    return {counts, lerp(r.low, r.high, step)};
  });
}

// ---- covariance

Tensor cov(const Tensor& x, int64_t correction, const Tensor& fweights, const Tensor& aweights,
           SourceLocation loc) {
  return composed("cov", loc, x, [&] {
    TD_CHECK(x.dim() <= 2, Shape, "expected at most two dimensions, got shape {}",
             x.shape().to_string());
    Tensor t = x.is_floating_point() ? x : x.to(DType::f32);
    t = x.dim() < 2 ? reshape(t, Shape(1, -1)) : t;
    const Dim n = t.shape(1);
    Tensor w;
    if (fweights.defined()) {
      TD_CHECK(
          is_integral(fweights.dtype()) && fweights.dim() == 1 && dims_equal(fweights.shape(0), n),
          Shape, "fweights must be {} integers, got {}{}", n.to_string(),
          to_string(fweights.dtype()), fweights.shape().to_string());
      w = fweights.to(t.dtype());
    }
    if (aweights.defined()) {
      TD_CHECK(
          is_floating(aweights.dtype()) && aweights.dim() == 1 && dims_equal(aweights.shape(0), n),
          Shape, "aweights must be {} floating numbers, got {}{}", n.to_string(),
          to_string(aweights.dtype()), aweights.shape().to_string());
      w = w.defined() ? w * aweights : aweights.to(t.dtype());
    }
    Tensor total = w.defined() ? sum(w) : sum(ones_like(select(t, 0, 0)));
    const Tensor center = w.defined() ? sum(t * w, {1}, true) / total : mean(t, {1}, true);
    const Tensor rest = t - center;
    Tensor divisor = total;
    if (w.defined() && aweights.defined() && correction != 0) {
      const Tensor squares = sum(w * aweights);
      divisor = total - static_cast<double>(correction) * squares / total;
    } else {
      divisor = total - static_cast<double>(correction);
    }
    const Tensor scaled = w.defined() ? rest * w : rest;
    const Tensor c = matmul(scaled, rest, MatmulAttrs{false, true}) / clamp_min(divisor, 0.0);
    return x.dim() < 2 ? reshape(c, Shape()) : c;
  });
}

Tensor corrcoef(const Tensor& x, SourceLocation loc) {
  return composed("corrcoef", loc, x, [&] {
    const Tensor c = cov(x);
    if (c.dim() == 0) return c / c;
    const Tensor deviation = sqrt(diagonal(c));
    const Tensor r = c / unsqueeze(deviation, 1) / unsqueeze(deviation, 0);
    return clamp(r, -1.0, 1.0);
  });
}

}  // namespace tandem
