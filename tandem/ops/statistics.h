// SPDX-License-Identifier: Apache-2.0
// Order statistics, histograms and covariances, with PyTorch's names, arguments and ties. All are
// made of sort, gather and sums, so gradients go where PyTorch's go.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "tandem/graph/apply.h"

namespace tandem {

using ValuesAndIndices = std::pair<Tensor, Tensor>;

/// (value, index) of the k-th smallest along `dim`, k from 1. NaN counts as the largest.
TD_API ValuesAndIndices kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false,
                                 Where where = Where::here());
/// The lower of the middle ones of all elements; NaN if there is one.
TD_API Tensor median(const Tensor& x, Where where = Where::here());
TD_API ValuesAndIndices median(const Tensor& x, int64_t dim, bool keepdim = false,
                               Where where = Where::here());
/// The same among what is not NaN.
TD_API Tensor nanmedian(const Tensor& x, Where where = Where::here());
TD_API ValuesAndIndices nanmedian(const Tensor& x, int64_t dim, bool keepdim = false,
                                  Where where = Where::here());
/// The value that occurs most often along `dim`, the smallest of several, and its last index.
TD_API ValuesAndIndices mode(const Tensor& x, int64_t dim = -1, bool keepdim = false,
                             Where where = Where::here());
/// The q-th quantiles (q a number or a vector in 0..1) of all elements or along `dim`; those of a
/// vector come first in the shape. interpolation: linear, lower, higher, nearest, midpoint. NaN if
/// there is one. f32 and f64.
TD_API Tensor quantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                       bool keepdim = false, std::string_view interpolation = "linear",
                       Where where = Where::here());
/// The same among what is not NaN.
TD_API Tensor nanquantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                          bool keepdim = false, std::string_view interpolation = "linear",
                          Where where = Where::here());
/// Sorted along the first dimension.
TD_API Tensor msort(const Tensor& x, Where where = Where::here());
/// Mean of what is not NaN.
TD_API Tensor nanmean(const Tensor& x, IntList dims = {}, bool keepdim = false,
                      Where where = Where::here());

/// How many elements fall into each of `bins` equal parts of min..max (in x's dtype); the last part
/// holds max too. min = max = 0: the smallest and largest element.
TD_API Tensor histc(const Tensor& x, int64_t bins = 100, double min = 0, double max = 0,
                    Where where = Where::here());
/// (counts, edges): weights instead of ones if given; density: divided by total and width.
TD_API std::pair<Tensor, Tensor> histogram(const Tensor& x, int64_t bins,
                                           std::optional<std::pair<double, double>> range = {},
                                           const Tensor& weight = {}, bool density = false,
                                           Where where = Where::here());

/// Covariance of the rows of x [variables, observations] (or of one variable [observations]).
/// fweights: how often each observation counts (integers); aweights: its importance.
TD_API Tensor cov(const Tensor& x, int64_t correction = 1, const Tensor& fweights = {},
                  const Tensor& aweights = {}, Where where = Where::here());
/// Correlation coefficients, cut to -1..1.
TD_API Tensor corrcoef(const Tensor& x, Where where = Where::here());

}  // namespace tandem
