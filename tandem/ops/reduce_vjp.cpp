// SPDX-License-Identifier: Apache-2.0
// Derivatives of reductions and scans, written with public ops. Where they divide, what is not
// meant is replaced before the division, so that no branch makes a NaN.
#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce_internal.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/view.h"

namespace tandem::detail {
namespace {

IntList dims_of(const VjpCall& c) {
  return reduced_dims(c.get_attrs<ReduceAttrs>().dims, c.in_shape(0).rank());
}

// A result of the reduction with the reduced dims in place as 1.
Tensor with_dims(const VjpCall& c, const Tensor& t) {
  if (c.get_attrs<ReduceAttrs>().keepdim) return t;
  return reshape(t, reduced_shape(c.in_shape(0), dims_of(c), true), c.where());
}

Tensor spread(const VjpCall& c, const Tensor& t) {
  return expand(with_dims(c, t), c.in_shape(0), c.where());
}

// g / (number of reduced elements - correction).
Tensor per_element(const VjpCall& c, const Tensor& g, double correction = 0) {
  Dim n = 1;
  for (Dim d : dims_of(c)) n = n * c.in_shape(0)[static_cast<int>(d.raw())];
  if (!n.is_symbolic()) {
    return div(g, static_cast<double>(n.value()) - correction, c.where());
  }
  Tensor ones = expand(full({}, 1, c.in_dtype(0), c.where()), c.in_shape(0), c.where());
  Tensor count = sum(ones, dims_of(c), c.get_attrs<ReduceAttrs>().keepdim, c.where());
  return div(g, sub(count, correction, c.where()), c.where());
}

int scan_dim(const VjpCall& c) {
  const int rank = c.in_shape(0).rank();
  return rank == 0 ? 0 : normalize_dim(c.get_attrs<ScanAttrs>().dim, rank);
}
Tensor reversed_cumsum(const Tensor& t, int dim, Where where) {
  if (t.dim() == 0) return t;
  return flip(cumsum(flip(t, {dim}, where), dim, where), {dim}, where);
}

}  // namespace

void sum_vjp(VjpCall& c) { c.results[0] = spread(c, c.grad()); }

void mean_vjp(VjpCall& c) { c.results[0] = spread(c, per_element(c, c.grad())); }

// The product of the others: products from the left times products from the right.
void prod_vjp(VjpCall& c) {
  const Where where = c.where();
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
  Tensor x = reshape(permute(c.in(0), order, where), merged, where);
  const auto before = [&](const Tensor& t) {
    return cumprod(pad(t, {1, -1}, "constant", 1, where), last, where);
  };
  Tensor left = before(x);
  Tensor right = flip(before(flip(x, {last}, where)), {last}, where);
  IntList back;
  back.resize(rank);
  for (int d = 0; d < rank; ++d) back[static_cast<int>(order[d].raw())] = d;
  Tensor others = permute(reshape(mul(left, right, where), moved, where), back, where);
  c.results[0] = mul(spread(c, c.grad()), others, where);
}

void extreme_vjp(VjpCall& c) {
  const Where where = c.where();
  Tensor hit = eq(c.in(0), with_dims(c, c.out(0)), where).to(c.in_dtype(0), where);
  Tensor share = div(with_dims(c, c.grad()), sum(hit, dims_of(c), true, where), where);
  c.results[0] = mul(hit, share, where);
}

// max(dim), min(dim): the gradient goes to the index.
void pick_vjp(VjpCall& c) {
  if (!c.grad(0).defined()) return;
  const Where where = c.where();
  Tensor zero = expand(full({}, 0, c.in_dtype(0), where), c.in_shape(0), where);
  if (c.in_shape(0).rank() == 0) {
    c.results[0] = c.grad(0);
    return;
  }
  const auto dim = dims_of(c)[0].raw();
  c.results[0] = scatter_add(zero, dim, with_dims(c, c.out(1)), with_dims(c, c.grad(0)), where);
}

void var_vjp(VjpCall& c) {
  const Where where = c.where();
  Tensor distance = sub(c.in(0), mean(c.in(0), dims_of(c), true, where), where);
  Tensor g = per_element(c, mul(c.grad(), 2, where), c.scalar(1).to_double());
  c.results[0] = mul(with_dims(c, g), distance, where);
}

// Softmax weights; where all is -infinity they are 0.
void logsumexp_vjp(VjpCall& c) {
  const Where where = c.where();
  Tensor y = c.out(0);
  Tensor safe = tandem::where(isneginf(y, where), 0, y, where);
  Tensor weights = exp(sub(c.in(0), with_dims(c, safe), where), where);
  c.results[0] = mul(with_dims(c, c.grad()), weights, where);
}

void norm_vjp(VjpCall& c) {
  const Where where = c.where();
  Tensor y = c.out(0);
  Tensor safe = tandem::where(eq(y, 0, where), 1, y, where);
  c.results[0] = mul(c.in(0), with_dims(c, div(c.grad(), safe, where)), where);
}

void sum_to_vjp(VjpCall& c) { c.results[0] = expand(c.grad(), c.in_shape(0), c.where()); }

void cumsum_vjp(VjpCall& c) { c.results[0] = reversed_cumsum(c.grad(), scan_dim(c), c.where()); }

// By x[i]: the product of what stands before it times h[i] = g[i] + x[i + 1] h[i + 1], the sum over
// what follows. Nothing is divided, so zeros do no harm in any order.
void cumprod_vjp(VjpCall& c) {
  const Where where = c.where();
  const int dim = scan_dim(c);
  const Tensor &x = c.in(0), &g = c.grad();
  if (x.dim() == 0) {
    c.results[0] = g;
    return;
  }
  const Tensor before = shifted(c.out(0), dim, 1, false, where);
  const Tensor after = linear_scan(shifted(x, dim, 0, true, where), g, dim, true, where);
  c.results[0] = mul(before, after, where);
}

// sum over k >= i of g_k exp(x_i - y_k), with the sum in logarithms for either sign of g.
void logcumsumexp_vjp(VjpCall& c) {
  const Where where = c.where();
  const int dim = scan_dim(c);
  const Tensor &x = c.in(0), &g = c.grad();
  if (x.dim() == 0) {
    c.results[0] = g;
    return;
  }
  const double inf = HUGE_VAL;
  const auto part = [&](const Tensor& positive, const Tensor& size) {
    // y is -inf before the first positive one: the difference stands inside the choice, else the
    // second derivative is -inf + inf.
    Tensor l = log(tandem::where(positive, size, 1, where), where);
    l = tandem::where(positive, sub(l, c.out(0), where), -inf, where);
    Tensor s = logcumsumexp(flip(l, {dim}, where), dim, where);
    return exp(add(flip(s, {dim}, where), x, where), where);
  };
  // A NaN gradient counts as positive, so that it is seen.
  Tensor positive = logical_not(le(g, 0, where), where);
  c.results[0] = sub(part(positive, g), part(lt(g, 0, where), neg(g, where)), where);
}

void cumpick_vjp(VjpCall& c) {
  if (!c.grad(0).defined()) return;
  if (c.in_shape(0).rank() == 0) {
    c.results[0] = c.grad(0);
    return;
  }
  const Where where = c.where();
  Tensor zero = expand(full({}, 0, c.in_dtype(0), where), c.in_shape(0), where);
  c.results[0] = scatter_add(zero, scan_dim(c), c.out(1), c.grad(0), where);
}

}  // namespace tandem::detail
