// SPDX-License-Identifier: Apache-2.0
// Reductions and scans with PyTorch's names, argument order and dtypes. Empty `dims` means all
// dimensions. Sums of integers and bools are i64; 16-bit floats accumulate in f32 and round once.
// The order of a sum depends only on shape and dims: bits depend neither on threads nor on strides.
#pragma once

#include <span>

#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem {

// ---- sums
TD_API Tensor sum(Tensor x, IntList dims = {}, bool keepdim = false,
                  SourceLocation loc = SourceLocation::here());
/// x is cast to `dtype` first.
TD_API Tensor sum(Tensor x, IntList dims, bool keepdim, DType dtype,
                  SourceLocation loc = SourceLocation::here());
/// The sum, ignoring NaNs.
TD_API Tensor nansum(Tensor x, IntList dims = {}, bool keepdim = false,
                     SourceLocation loc = SourceLocation::here());
/// Arithmetic mean; throws DType unless floating. The mean of no elements is NaN.
TD_API Tensor mean(Tensor x, IntList dims = {}, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor mean(Tensor x, IntList dims, bool keepdim, DType dtype,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor prod(Tensor x, IntList dims = {}, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor prod(Tensor x, IntList dims, bool keepdim, DType dtype,
                   SourceLocation loc = SourceLocation::here());
/// The number of nonzero elements (i64).
TD_API Tensor count_nonzero(Tensor x, IntList dims = {},
                            SourceLocation loc = SourceLocation::here());

// ---- extremes: NaN wins; an empty dimension throws Shape
// The largest element; equal ones share the gradient evenly.
TD_API Tensor amax(Tensor x, IntList dims = {}, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());
TD_API Tensor amin(Tensor x, IntList dims = {}, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());
TD_API MinAndMax aminmax(Tensor x, IntList dims = {}, bool keepdim = false,
                         SourceLocation loc = SourceLocation::here());
/// The largest (smallest) of all elements.
TD_API Tensor max(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor min(Tensor x, SourceLocation loc = SourceLocation::here());
/// The largest (smallest) along `dim` and their indices (i64); the lowest index wins a tie and gets
/// the gradient.
TD_API ValuesAndIndices max(Tensor x, int64_t dim, bool keepdim = false,
                            SourceLocation loc = SourceLocation::here());
TD_API ValuesAndIndices min(Tensor x, int64_t dim, bool keepdim = false,
                            SourceLocation loc = SourceLocation::here());
/// Index (i64) of the first largest (smallest) element: of the flattened tensor, or along `dim`.
TD_API Tensor argmax(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor argmax(Tensor x, int64_t dim, bool keepdim = false,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor argmin(Tensor x, SourceLocation loc = SourceLocation::here());
TD_API Tensor argmin(Tensor x, int64_t dim, bool keepdim = false,
                     SourceLocation loc = SourceLocation::here());

// ---- truth: an element counts as true unless it is zero; bool, but u8 of a u8
TD_API Tensor any(Tensor x, IntList dims = {}, bool keepdim = false,
                  SourceLocation loc = SourceLocation::here());
TD_API Tensor all(Tensor x, IntList dims = {}, bool keepdim = false,
                  SourceLocation loc = SourceLocation::here());

// ---- statistics: floating dtypes only
// Sum of squared distances from the mean over (n - correction), computed in f64.
TD_API Tensor var(Tensor x, IntList dims = {}, double correction = 1, bool keepdim = false,
                  SourceLocation loc = SourceLocation::here());
/// sqrt(var).
TD_API Tensor std(Tensor x, IntList dims = {}, double correction = 1, bool keepdim = false,
                  SourceLocation loc = SourceLocation::here());
TD_API VarAndMean var_mean(Tensor x, IntList dims = {}, double correction = 1, bool keepdim = false,
                           SourceLocation loc = SourceLocation::here());
TD_API StdAndMean std_mean(Tensor x, IntList dims = {}, double correction = 1, bool keepdim = false,
                           SourceLocation loc = SourceLocation::here());
/// log(sum(exp(x))), safe for large x.
TD_API Tensor logsumexp(Tensor x, IntList dims = {}, bool keepdim = false,
                        SourceLocation loc = SourceLocation::here());
/// (sum of |x|^p)^(1/p); p may be 0 (counts nonzero elements) and +-infinity. The gradient of a
/// norm of 0 is 0.
TD_API Tensor norm(Tensor x, double p = 2, IntList dims = {}, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());
/// The 2-norm over `dims`: `norm(x, {-1})` would otherwise be a p of -1.
TD_API Tensor norm(Tensor x, std::initializer_list<int64_t> dims, bool keepdim = false,
                   SourceLocation loc = SourceLocation::here());

// ---- scans along one dimension
TD_API Tensor cumsum(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
TD_API Tensor cumprod(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
TD_API Tensor logcumsumexp(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
/// The largest (smallest) element so far and its index (i64); the last of equal ones.
TD_API ValuesAndIndices cummax(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
TD_API ValuesAndIndices cummin(Tensor x, int64_t dim, SourceLocation loc = SourceLocation::here());
/// Differences of adjacent elements along `dim`, n times.
TD_API Tensor diff(Tensor x, int64_t n = 1, int64_t dim = -1,
                   SourceLocation loc = SourceLocation::here());

/// x summed to `shape`, which must broadcast to x's shape.
TD_API Tensor sum_to(Tensor x, Shape shape, SourceLocation loc = SourceLocation::here());

// ---- rows
namespace op {
/// All: x -> y, with ReduceAttrs or ScanAttrs. max_dim, min_dim, cummax, cummin: x -> values,
/// indices. var: x, correction$ -> y. norm is the 2-norm. `sum_to` is declared in graph/apply.h.
extern TD_API const OpDef sum, mean, prod, count_nonzero, amax, amin, max_dim, min_dim, argmax,
    argmin, any, all, var, logsumexp, norm, cumsum, cumprod, logcumsumexp, cummax, cummin;
}  // namespace op
/// The rows of this file, op::sum_to included.
TD_API std::span<const OpDef* const> reduce_rows();

}  // namespace tandem
