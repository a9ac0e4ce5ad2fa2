// SPDX-License-Identifier: Apache-2.0
// Order statistics, histograms and covariances, with PyTorch's names, arguments and tie rules.
// kthvalue and the medians are a row; the others are composed of sort, gather and sums. Gradients
// go where PyTorch's go.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "tandem/graph/apply.h"

namespace tandem {

/// The k-th smallest along `dim`, k from 1. NaN counts as the largest.
TD_API ValuesAndIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false,
                                 SourceLocation loc = SourceLocation::here());
/// The lower median of all elements; NaN if one is present or there is none. Equal ones share the
/// gradient evenly.
TD_API Tensor median(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API ValuesAndIndices median(const Tensor& x, int64_t dim, bool keepdim = false,
                               SourceLocation loc = SourceLocation::here());
/// The same, ignoring NaNs.
TD_API Tensor nanmedian(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API ValuesAndIndices nanmedian(const Tensor& x, int64_t dim, bool keepdim = false,
                                  SourceLocation loc = SourceLocation::here());
/// The most frequent value along `dim`, the smallest if there are several, and its last index.
TD_API ValuesAndIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false,
                             SourceLocation loc = SourceLocation::here());
/// The q-th quantiles (q a number or a vector in 0..1) of all elements or along `dim`; for a
/// vector, q's dim comes first. interpolation: linear, lower, higher, nearest, midpoint. NaN if one
/// is present. f32 and f64.
TD_API Tensor quantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                       bool keepdim = false, std::string_view interpolation = "linear",
                       SourceLocation loc = SourceLocation::here());
/// The same, ignoring NaNs.
TD_API Tensor nanquantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                          bool keepdim = false, std::string_view interpolation = "linear",
                          SourceLocation loc = SourceLocation::here());
/// Sorted along the first dimension.
TD_API Tensor msort(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// The mean, ignoring NaNs.
TD_API Tensor nanmean(const Tensor& x, IntList dims = {}, bool keepdim = false,
                      SourceLocation loc = SourceLocation::here());

/// Number of elements in each of `bins` equal parts of min..max (in x's dtype); the last part
/// includes max. min = max = 0: the smallest and largest element, which must be finite.
TD_API Tensor histc(const Tensor& x, int64_t bins = 100, double min = 0, double max = 0,
                    SourceLocation loc = SourceLocation::here());
/// The counts (sums of weights if given; density: divided by total and width) and the edges of the
/// bins, [bins + 1].
TD_API HistogramResult histogram(const Tensor& x, int64_t bins,
                                 std::optional<std::pair<double, double>> range = {},
                                 const Tensor& weight = {}, bool density = false,
                                 SourceLocation loc = SourceLocation::here());

/// Covariance of the rows of x [variables, observations] (or of one variable [observations]).
/// fweights: how often each observation counts (integers); aweights: its importance.
TD_API Tensor cov(const Tensor& x, int64_t correction = 1, const Tensor& fweights = {},
                  const Tensor& aweights = {}, SourceLocation loc = SourceLocation::here());
/// Correlation coefficients, clamped to -1..1.
TD_API Tensor corrcoef(const Tensor& x, SourceLocation loc = SourceLocation::here());

}  // namespace tandem
