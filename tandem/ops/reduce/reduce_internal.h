// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the reduction family: shapes, rules, expressions and references of its
// rows. Not installed.
#pragma once

#include "tandem/graph/batch.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/vjp.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem::detail {

/// Reduced dims of a tensor of `rank`, non-negative and sorted; dim 0 of a 0-d tensor is ignored.
IntList reduced_dims(const IntList& dims, int rank);
/// `x` without the dims, or with 1 in their place.
Shape reduced_shape(const Shape& x, const IntList& dims, bool keepdim);

// ---- rules (reduce_rules.cpp)
void infer_reduce(InferCall& c);
void infer_scan(InferCall& c);
void infer_sum_to(InferCall& c);
void batch_reduce(BatchCall& c);
void batch_scan(BatchCall& c);
void batch_sum_to(BatchCall& c);

// ---- derivatives (reduce_vjp.cpp)
void sum_vjp(VjpCall& c);
void mean_vjp(VjpCall& c);
void prod_vjp(VjpCall& c);
void extreme_vjp(VjpCall& c);
void pick_vjp(VjpCall& c);
void var_vjp(VjpCall& c);
void logsumexp_vjp(VjpCall& c);
void norm_vjp(VjpCall& c);
void sum_to_vjp(VjpCall& c);
void cumsum_vjp(VjpCall& c);
void cumprod_vjp(VjpCall& c);
void logcumsumexp_vjp(VjpCall& c);
void cumpick_vjp(VjpCall& c);

// ---- references (reduce_reference.cpp): plain loops in f64 or i64 over any strides
#define TD_REFERENCE(name) void name##_reference(const KernelCall& call);
TD_REFERENCE(sum)
TD_REFERENCE(mean)
TD_REFERENCE(prod)
TD_REFERENCE(count_nonzero)
TD_REFERENCE(max)
TD_REFERENCE(min)
TD_REFERENCE(argmax)
TD_REFERENCE(argmin)
TD_REFERENCE(any)
TD_REFERENCE(all)
TD_REFERENCE(var)
TD_REFERENCE(logsumexp)
TD_REFERENCE(norm)
TD_REFERENCE(sum_to)
TD_REFERENCE(cumsum)
TD_REFERENCE(cumprod)
TD_REFERENCE(logcumsumexp)
TD_REFERENCE(cummax)
TD_REFERENCE(cummin)
#undef TD_REFERENCE

}  // namespace tandem::detail
