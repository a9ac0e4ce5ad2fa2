// SPDX-License-Identifier: Apache-2.0
// The public functions of reductions and scans: each is one row, or a few.
#include "tandem/ops/reduce/reduce.h"

#include <cmath>

#include "tandem/graph/trace.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::named;

Tensor reduce_call(const OpDef& op, Tensor x, const IntList& dims, bool keepdim,
                   SourceLocation loc) {
  ReduceAttrs a{dims, keepdim};
  return call(op, &a, loc, std::move(x));
}
Tensor scan_call(const OpDef& op, Tensor x, int64_t dim, SourceLocation loc) {
  ScanAttrs a{dim};
  return call(op, &a, loc, std::move(x));
}
template <class A>
ValuesAndIndices pair_call(const OpDef& op, const A& a, Tensor x, SourceLocation loc) {
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(std::move(x), loc)};
  apply(op, &a, in, out, loc);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

#define TD_REDUCTION(name)                                                \
  Tensor name(Tensor x, IntList dims, bool keepdim, SourceLocation loc) { \
    return reduce_call(op::name, std::move(x), dims, keepdim, loc);       \
  }
#define TD_TYPED_REDUCTION(name)                                                         \
  TD_REDUCTION(name)                                                                     \
  Tensor name(Tensor x, IntList dims, bool keepdim, DType dtype, SourceLocation loc) {   \
    return named(#name, loc, [&] {                                                       \
      return reduce_call(op::name, x.to(dtype, loc), dims, keepdim, loc).to(dtype, loc); \
    });                                                                                  \
  }
TD_TYPED_REDUCTION(sum)
TD_TYPED_REDUCTION(mean)
TD_TYPED_REDUCTION(prod)
TD_REDUCTION(amax)
TD_REDUCTION(amin)
// As in PyTorch, u8 stays u8: it was the dtype of masks before there was bool.
#define TD_TRUTH(name)                                                    \
  Tensor name(Tensor x, IntList dims, bool keepdim, SourceLocation loc) { \
    const bool was_u8 = x.defined() && x.dtype() == DType::u8;            \
    Tensor y = reduce_call(op::name, std::move(x), dims, keepdim, loc);   \
    return was_u8 ? y.to(DType::u8, loc) : y;                             \
  }
TD_TRUTH(any)
TD_TRUTH(all)
#undef TD_TRUTH
Tensor logsumexp(Tensor x, IntList dims, bool keepdim, SourceLocation loc) {
  if (x.defined() && !is_floating(x.dtype())) x = x.to(DType::f32, loc);
  return reduce_call(op::logsumexp, std::move(x), dims, keepdim, loc);
}
#undef TD_REDUCTION
#undef TD_TYPED_REDUCTION

Tensor nansum(Tensor x, IntList dims, bool keepdim, SourceLocation loc) {
  return named("nansum", loc, [&] {
    Tensor known = x.is_floating_point() ? where(isnan(x, loc), 0, x, loc) : x;
    return sum(std::move(known), dims, keepdim, loc);
  });
}
Tensor count_nonzero(Tensor x, IntList dims, SourceLocation loc) {
  return reduce_call(op::count_nonzero, std::move(x), dims, false, loc);
}
MinAndMax aminmax(Tensor x, IntList dims, bool keepdim, SourceLocation loc) {
  return named("aminmax", loc, [&]() -> MinAndMax {
    return {amin(x, dims, keepdim, loc), amax(x, dims, keepdim, loc)};
  });
}

Tensor max(Tensor x, SourceLocation loc) {
  return named("max", loc, [&] { return amax(std::move(x), {}, false, loc); });
}
Tensor min(Tensor x, SourceLocation loc) {
  return named("min", loc, [&] { return amin(std::move(x), {}, false, loc); });
}
ValuesAndIndices max(Tensor x, int64_t dim, bool keepdim, SourceLocation loc) {
  return named("max", loc, [&] {
    return pair_call(op::max_dim, ReduceAttrs{{dim}, keepdim}, std::move(x), loc);
  });
}
ValuesAndIndices min(Tensor x, int64_t dim, bool keepdim, SourceLocation loc) {
  return named("min", loc, [&] {
    return pair_call(op::min_dim, ReduceAttrs{{dim}, keepdim}, std::move(x), loc);
  });
}
Tensor argmax(Tensor x, SourceLocation loc) {
  return reduce_call(op::argmax, std::move(x), {}, false, loc);
}
Tensor argmax(Tensor x, int64_t dim, bool keepdim, SourceLocation loc) {
  return reduce_call(op::argmax, std::move(x), {dim}, keepdim, loc);
}
Tensor argmin(Tensor x, SourceLocation loc) {
  return reduce_call(op::argmin, std::move(x), {}, false, loc);
}
Tensor argmin(Tensor x, int64_t dim, bool keepdim, SourceLocation loc) {
  return reduce_call(op::argmin, std::move(x), {dim}, keepdim, loc);
}

Tensor var(Tensor x, IntList dims, double correction, bool keepdim, SourceLocation loc) {
  ReduceAttrs a{dims, keepdim};
  return call(op::var, &a, loc, std::move(x), Scalar(correction));
}
// The root's derivative at 0 is infinite: there the gradient is 0, not infinity times 0.
Tensor std(Tensor x, IntList dims, double correction, bool keepdim, SourceLocation loc) {
  Tensor v = named("std", loc, [&] { return var(std::move(x), dims, correction, keepdim, loc); });
  const bool derived = is_tracing() || (is_grad_enabled() && v.requires_grad());
  if (!derived) return sqrt(std::move(v), loc);
  Tensor zero = eq(v, 0, loc);
  return where(zero, 0, sqrt(where(zero, 1, v, loc), loc), loc);
}
VarAndMean var_mean(Tensor x, IntList dims, double correction, bool keepdim, SourceLocation loc) {
  return named("var_mean", loc, [&]() -> VarAndMean {
    return {var(x, dims, correction, keepdim, loc), mean(x, dims, keepdim, loc)};
  });
}
StdAndMean std_mean(Tensor x, IntList dims, double correction, bool keepdim, SourceLocation loc) {
  return named("std_mean", loc, [&]() -> StdAndMean {
    return {tandem::std(x, dims, correction, keepdim, loc), mean(x, dims, keepdim, loc)};
  });
}

Tensor norm(Tensor x, double p, IntList dims, bool keepdim, SourceLocation loc) {
  return named("norm", loc, [&]() -> Tensor {
    if (p == 2) return reduce_call(op::norm, std::move(x), dims, keepdim, loc);
    TD_CHECK(x.is_floating_point(), DType, "expected a floating dtype, x is {}",
             to_string(x.dtype()));
    if (p == 1) return sum(abs(std::move(x), loc), dims, keepdim, loc);
    if (p == 0) return sum(ne(x, 0, loc).to(x.dtype(), loc), dims, keepdim, loc);
    if (std::isinf(p)) {
      Tensor a = abs(std::move(x), loc);
      return p > 0 ? amax(a, dims, keepdim, loc) : amin(a, dims, keepdim, loc);
    }
    // pow's derivative at 0 is 0 or infinite: only nonzero elements contribute, and a norm of 0 has
    // no gradient.
    Tensor a = abs(std::move(x), loc);
    Tensor powers;
    if (p < 1) {
      Tensor none = eq(a, 0, loc);
      powers = where(none, p > 0 ? 0 : HUGE_VAL, pow(where(none, 1, a, loc), p, loc), loc);
    } else {
      powers = pow(a, p, loc);
    }
    Tensor s = sum(powers, dims, keepdim, loc);
    Tensor zero = eq(s, 0, loc);
    return where(zero, 0, pow(where(zero, 1, s, loc), 1 / p, loc), loc);
  });
}

Tensor norm(Tensor x, std::initializer_list<int64_t> dims, bool keepdim, SourceLocation loc) {
  return named("norm", loc, [&] {
    return norm(std::move(x), 2, IntList(std::span(dims.begin(), dims.size())), keepdim, loc);
  });
}

Tensor cumsum(Tensor x, int64_t dim, SourceLocation loc) {
  return scan_call(op::cumsum, std::move(x), dim, loc);
}
Tensor cumprod(Tensor x, int64_t dim, SourceLocation loc) {
  return scan_call(op::cumprod, std::move(x), dim, loc);
}
Tensor logcumsumexp(Tensor x, int64_t dim, SourceLocation loc) {
  return scan_call(op::logcumsumexp, std::move(x), dim, loc);
}
ValuesAndIndices cummax(Tensor x, int64_t dim, SourceLocation loc) {
  return pair_call(op::cummax, ScanAttrs{dim}, std::move(x), loc);
}
ValuesAndIndices cummin(Tensor x, int64_t dim, SourceLocation loc) {
  return pair_call(op::cummin, ScanAttrs{dim}, std::move(x), loc);
}

Tensor diff(Tensor x, int64_t n, int64_t dim, SourceLocation loc) {
  return detail::placed("diff", loc, [&] {
    TD_CHECK(n >= 0, Value, "n must not be negative, it is {}", n);
    const int d = normalize_dim(dim, x.dim());
    for (; n > 0; --n) {
      Tensor left = slice(x, d, 0, -1, 1, loc), right = slice(x, d, 1, Slice::kEnd, 1, loc);
      x = is_bool(x.dtype()) ? logical_xor(right, left, loc) : sub(right, left, loc);
    }
    return x;
  });
}

Tensor sum_to(Tensor x, Shape shape, SourceLocation loc) {
  return named("sum_to", loc, [&]() -> Tensor {
    if (x.shape() == shape) return x;
    ShapeAttrs a{shape};
    return call(op::sum_to, &a, loc, std::move(x));
  });
}

}  // namespace tandem
