// SPDX-License-Identifier: Apache-2.0
// The public functions of reductions and scans: each is one row, or a few.
#include "tandem/ops/reduce.h"

#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/view.h"

namespace tandem {
namespace {

Tensor reduce_call(const OpDef& op, Tensor x, const IntList& dims, bool keepdim, Where where) {
  ReduceAttrs a{dims, keepdim};
  return call(op, &a, where, std::move(x));
}
Tensor scan_call(const OpDef& op, Tensor x, int64_t dim, Where where) {
  ScanAttrs a{dim};
  return call(op, &a, where, std::move(x));
}
template <class A>
std::pair<Tensor, Tensor> pair_call(const OpDef& op, const A& a, Tensor x, Where where) {
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(std::move(x), where)};
  apply(op, &a, in, out, where);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

#define TD_REDUCTION(name)                                            \
  Tensor name(Tensor x, IntList dims, bool keepdim, Where where) {    \
    return reduce_call(op::name, std::move(x), dims, keepdim, where); \
  }
#define TD_TYPED_REDUCTION(name)                                                             \
  TD_REDUCTION(name)                                                                         \
  Tensor name(Tensor x, IntList dims, bool keepdim, DType dtype, Where where) {              \
    return reduce_call(op::name, x.to(dtype, where), dims, keepdim, where).to(dtype, where); \
  }
TD_TYPED_REDUCTION(sum)
TD_TYPED_REDUCTION(mean)
TD_TYPED_REDUCTION(prod)
TD_REDUCTION(amax)
TD_REDUCTION(amin)
TD_REDUCTION(any)
TD_REDUCTION(all)
Tensor logsumexp(Tensor x, IntList dims, bool keepdim, Where where) {
  if (x.defined() && !is_floating(x.dtype())) x = x.to(DType::f32, where);
  return reduce_call(op::logsumexp, std::move(x), dims, keepdim, where);
}
#undef TD_REDUCTION
#undef TD_TYPED_REDUCTION

Tensor nansum(Tensor x, IntList dims, bool keepdim, Where where) {
  Tensor known = x.is_floating_point() ? tandem::where(isnan(x, where), 0, x, where) : x;
  return sum(std::move(known), dims, keepdim, where);
}
Tensor count_nonzero(Tensor x, IntList dims, Where where) {
  return reduce_call(op::count_nonzero, std::move(x), dims, false, where);
}
std::pair<Tensor, Tensor> aminmax(Tensor x, IntList dims, bool keepdim, Where where) {
  return {amin(x, dims, keepdim, where), amax(x, dims, keepdim, where)};
}

Tensor max(Tensor x, Where where) { return amax(std::move(x), {}, false, where); }
Tensor min(Tensor x, Where where) { return amin(std::move(x), {}, false, where); }
std::pair<Tensor, Tensor> max(Tensor x, int64_t dim, bool keepdim, Where where) {
  return pair_call(op::max_dim, ReduceAttrs{{dim}, keepdim}, std::move(x), where);
}
std::pair<Tensor, Tensor> min(Tensor x, int64_t dim, bool keepdim, Where where) {
  return pair_call(op::min_dim, ReduceAttrs{{dim}, keepdim}, std::move(x), where);
}
Tensor argmax(Tensor x, Where where) {
  return reduce_call(op::argmax, std::move(x), {}, false, where);
}
Tensor argmax(Tensor x, int64_t dim, bool keepdim, Where where) {
  return reduce_call(op::argmax, std::move(x), {dim}, keepdim, where);
}
Tensor argmin(Tensor x, Where where) {
  return reduce_call(op::argmin, std::move(x), {}, false, where);
}
Tensor argmin(Tensor x, int64_t dim, bool keepdim, Where where) {
  return reduce_call(op::argmin, std::move(x), {dim}, keepdim, where);
}

Tensor var(Tensor x, IntList dims, double correction, bool keepdim, Where where) {
  ReduceAttrs a{dims, keepdim};
  return call(op::var, &a, where, std::move(x), Scalar(correction));
}
Tensor std(Tensor x, IntList dims, double correction, bool keepdim, Where where) {
  return sqrt(var(std::move(x), dims, correction, keepdim, where), where);
}
std::pair<Tensor, Tensor> var_mean(Tensor x, IntList dims, double correction, bool keepdim,
                                   Where where) {
  return {var(x, dims, correction, keepdim, where), mean(x, dims, keepdim, where)};
}
std::pair<Tensor, Tensor> std_mean(Tensor x, IntList dims, double correction, bool keepdim,
                                   Where where) {
  return {tandem::std(x, dims, correction, keepdim, where), mean(x, dims, keepdim, where)};
}

Tensor norm(Tensor x, double p, IntList dims, bool keepdim, Where where) {
  if (p == 2) return reduce_call(op::norm, std::move(x), dims, keepdim, where);
  TD_CHECK(x.is_floating_point(), DType, "norm: wants a floating dtype, x is {}",
           to_string(x.dtype()));
  if (p == 1) return sum(abs(std::move(x), where), dims, keepdim, where);
  if (p == 0) return sum(ne(x, 0, where).to(x.dtype(), where), dims, keepdim, where);
  if (std::isinf(p)) {
    Tensor a = abs(std::move(x), where);
    return p > 0 ? amax(a, dims, keepdim, where) : amin(a, dims, keepdim, where);
  }
  // pow's derivative at 0 is 0 or infinite: only what is not zero takes part, and a norm of 0 has
  // no gradient.
  Tensor a = abs(std::move(x), where);
  Tensor s = sum(pow(a, p, where), dims, keepdim, where);
  Tensor zero = eq(s, 0, where);
  return tandem::where(zero, 0, pow(tandem::where(zero, 1, s, where), 1 / p, where), where);
}

Tensor cumsum(Tensor x, int64_t dim, Where where) {
  return scan_call(op::cumsum, std::move(x), dim, where);
}
Tensor cumprod(Tensor x, int64_t dim, Where where) {
  return scan_call(op::cumprod, std::move(x), dim, where);
}
Tensor logcumsumexp(Tensor x, int64_t dim, Where where) {
  return scan_call(op::logcumsumexp, std::move(x), dim, where);
}
std::pair<Tensor, Tensor> cummax(Tensor x, int64_t dim, Where where) {
  return pair_call(op::cummax, ScanAttrs{dim}, std::move(x), where);
}
std::pair<Tensor, Tensor> cummin(Tensor x, int64_t dim, Where where) {
  return pair_call(op::cummin, ScanAttrs{dim}, std::move(x), where);
}

Tensor diff(Tensor x, int64_t n, int64_t dim, Where where) {
  return detail::placed("diff", where, [&] {
    TD_CHECK(n >= 0, Value, "n must not be negative, it is {}", n);
    const int d = normalize_dim(dim, x.dim());
    for (; n > 0; --n) {
      Tensor left = slice(x, d, 0, -1, 1, where), right = slice(x, d, 1, Slice::kEnd, 1, where);
      x = is_bool(x.dtype()) ? logical_xor(right, left, where) : sub(right, left, where);
    }
    return x;
  });
}

Tensor sum_to(Tensor x, Shape shape, Where where) {
  if (x.shape() == shape) return x;
  ShapeAttrs a{shape};
  return call(op::sum_to, &a, where, std::move(x));
}

}  // namespace tandem
