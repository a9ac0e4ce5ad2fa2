// SPDX-License-Identifier: Apache-2.0
// Derivatives of reductions and scans, written with public ops. Where they divide, unused elements
// are replaced before the division, so that no branch produces a NaN.
#include <cmath>

#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce_internal.h"
#include "tandem/ops/reduce/scan.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::detail {
namespace {

IntList dims_of(const VjpCall& c) {
  return reduced_dims(c.get_attrs<ReduceAttrs>().dims, c.in_shape(0).rank());
}

// A result of the reduction with the reduced dims restored as 1.
Tensor with_dims(const VjpCall& c, const Tensor& t) {
  if (c.get_attrs<ReduceAttrs>().keepdim) return t;
  return reshape(t, reduced_shape(c.in_shape(0), dims_of(c), true), c.loc());
}

Tensor spread(const VjpCall& c, const Tensor& t) {
  return expand(with_dims(c, t), c.in_shape(0), c.loc());
}

// g / (number of reduced elements - correction).
Tensor per_element(const VjpCall& c, const Tensor& g, double correction = 0) {
  Dim n = 1;
  for (Dim d : dims_of(c)) n = n * c.in_shape(0)[static_cast<int>(d.raw())];
  if (!n.is_symbolic()) {
    return div(g, static_cast<double>(n.value()) - correction, c.loc());
  }
  Tensor ones = expand(full({}, 1, c.in_dtype(0), c.loc()), c.in_shape(0), c.loc());
  Tensor count = sum(ones, dims_of(c), c.get_attrs<ReduceAttrs>().keepdim, c.loc());
  return div(g, sub(count, correction, c.loc()), c.loc());
}

int scan_dim(const VjpCall& c) {
  const int rank = c.in_shape(0).rank();
  return rank == 0 ? 0 : normalize_dim(c.get_attrs<ScanAttrs>().dim, rank);
}
Tensor reversed_cumsum(const Tensor& t, int dim, SourceLocation loc) {
  if (t.dim() == 0) return t;
  return flip(cumsum(flip(t, {dim}, loc), dim, loc), {dim}, loc);
}

}  // namespace

void sum_vjp(VjpCall& c) { c.results[0] = spread(c, c.grad()); }

void mean_vjp(VjpCall& c) { c.results[0] = spread(c, per_element(c, c.grad())); }

// The product of the others: products from the left times products from the right.
void prod_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  const Shape& shape = c.in_shape(0);
  const IntList dims = dims_of(c);
  const int rank = shape.rank(), n = dims.rank();
  if (n == 0) {
    c.results[0] = c.grad();
    return;
  }
  // Reduced dims last and merged.
  IntList order;
  Shape merged, moved;
  int next = 0;
  for (int d = 0; d < rank; ++d) {
    if (next < n && dims[next].raw() == d) {
      ++next;
      continue;
    }
    order.push_back(d);
    merged.push_back(shape[d]);
  }
  Dim length = 1;
  for (Dim d : dims) {
    order.push_back(d);
    length = length * shape[static_cast<int>(d.raw())];
  }
  merged.push_back(length);
  for (Dim d : order) moved.push_back(shape[static_cast<int>(d.raw())]);
  const int last = merged.rank() - 1;
  Tensor x = reshape(permute(c.in(0), order, loc), merged, loc);
  const auto before = [&](const Tensor& t) {
    return cumprod(pad(t, {1, -1}, "constant", 1, loc), last, loc);
  };
  Tensor left = before(x);
  Tensor right = flip(before(flip(x, {last}, loc)), {last}, loc);
  IntList back;
  back.resize(rank);
  for (int d = 0; d < rank; ++d) back[static_cast<int>(order[d].raw())] = d;
  Tensor others = permute(reshape(mul(left, right, loc), moved, loc), back, loc);
  c.results[0] = mul(spread(c, c.grad()), others, loc);
}

void extreme_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  Tensor hit = eq(c.in(0), with_dims(c, c.out(0)), loc).to(c.in_dtype(0), loc);
  Tensor share = div(with_dims(c, c.grad()), sum(hit, dims_of(c), true, loc), loc);
  c.results[0] = mul(hit, share, loc);
}

// max(dim), min(dim): the gradient goes to the index.
void pick_vjp(VjpCall& c) {
  if (!c.grad(0).defined()) return;
  const SourceLocation loc = c.loc();
  Tensor zero = expand(full({}, 0, c.in_dtype(0), loc), c.in_shape(0), loc);
  if (c.in_shape(0).rank() == 0) {
    c.results[0] = c.grad(0);
    return;
  }
  const auto dim = dims_of(c)[0].raw();
  c.results[0] = scatter_add(zero, dim, with_dims(c, c.out(1)), with_dims(c, c.grad(0)), loc);
}

void var_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  Tensor distance = sub(c.in(0), mean(c.in(0), dims_of(c), true, loc), loc);
  Tensor g = per_element(c, mul(c.grad(), 2, loc), c.scalar(1).to_double());
  c.results[0] = mul(with_dims(c, g), distance, loc);
}

// Softmax weights; where all is -infinity they are 0.
void logsumexp_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  Tensor y = c.out(0);
  Tensor safe = where(isneginf(y, loc), 0, y, loc);
  Tensor weights = exp(sub(c.in(0), with_dims(c, safe), loc), loc);
  c.results[0] = mul(with_dims(c, c.grad()), weights, loc);
}

void norm_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  Tensor y = c.out(0);
  Tensor safe = where(eq(y, 0, loc), 1, y, loc);
  c.results[0] = mul(c.in(0), with_dims(c, div(c.grad(), safe, loc)), loc);
}

void sum_to_vjp(VjpCall& c) { c.results[0] = expand(c.grad(), c.in_shape(0), c.loc()); }

void cumsum_vjp(VjpCall& c) { c.results[0] = reversed_cumsum(c.grad(), scan_dim(c), c.loc()); }

// For x[i]: the product of the elements before it times h[i] = g[i] + x[i + 1] h[i + 1], the sum
// over the later ones. Nothing is divided, so zeros are harmless at any order.
void cumprod_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  const int dim = scan_dim(c);
  const Tensor &x = c.in(0), &g = c.grad();
  if (x.dim() == 0) {
    c.results[0] = g;
    return;
  }
  const Tensor before = shifted(c.out(0), dim, 1, false, loc);
  const Tensor after = linear_scan(shifted(x, dim, 0, true, loc), g, dim, true, loc);
  c.results[0] = mul(before, after, loc);
}

// sum over k >= i of g_k exp(x_i - y_k), with the sum in logarithms for either sign of g.
void logcumsumexp_vjp(VjpCall& c) {
  const SourceLocation loc = c.loc();
  const int dim = scan_dim(c);
  const Tensor &x = c.in(0), &g = c.grad();
  if (x.dim() == 0) {
    c.results[0] = g;
    return;
  }
  const double inf = HUGE_VAL;
  const auto part = [&](const Tensor& positive, const Tensor& size) {
    // y is -inf before the first positive one: the difference must be inside the selection, or the
    // second derivative is -inf + inf.
    Tensor l = log(where(positive, size, 1, loc), loc);
    l = where(positive, sub(l, c.out(0), loc), -inf, loc);
    Tensor s = logcumsumexp(flip(l, {dim}, loc), dim, loc);
    return exp(add(flip(s, {dim}, loc), x, loc), loc);
  };
  // A NaN gradient counts as positive, so that it stays visible.
  Tensor positive = logical_not(le(g, 0, loc), loc);
  c.results[0] = sub(part(positive, g), part(lt(g, 0, loc), neg(g, loc)), loc);
}

void cumpick_vjp(VjpCall& c) {
  if (!c.grad(0).defined()) return;
  if (c.in_shape(0).rank() == 0) {
    c.results[0] = c.grad(0);
    return;
  }
  const SourceLocation loc = c.loc();
  Tensor zero = expand(full({}, 0, c.in_dtype(0), loc), c.in_shape(0), loc);
  c.results[0] = scatter_add(zero, scan_dim(c), c.out(1), c.grad(0), loc);
}

}  // namespace tandem::detail
