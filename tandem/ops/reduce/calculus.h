// SPDX-License-Identifier: Apache-2.0
// Integrals and derivatives of sampled functions, distances, histograms over several dimensions.
// PyTorch's names and formulas; composed of sums, differences and index_add.
#pragma once

#include <optional>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

/// The integral along `dim` by the trapezoidal rule: samples `dx` apart, or at `x` (a vector, or of
/// a shape that broadcasts to y's).
TD_API Tensor trapezoid(const Tensor& y, double dx = 1, int64_t dim = -1,
                        SourceLocation loc = SourceLocation::here());
TD_API Tensor trapezoid(const Tensor& y, const Tensor& x, int64_t dim = -1,
                        SourceLocation loc = SourceLocation::here());
/// The same up to each sample but the first: size - 1 along `dim`.
TD_API Tensor cumulative_trapezoid(const Tensor& y, double dx = 1, int64_t dim = -1,
                                   SourceLocation loc = SourceLocation::here());
TD_API Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int64_t dim = -1,
                                   SourceLocation loc = SourceLocation::here());
/// Derivatives along each of `dim` (all by default), each in x's shape: by central differences of
/// second order inside, of order `edge_order` (1 or 2) at the ends. Samples lie `spacing` apart
/// (one number, or one per dim), or at the coordinates of each dim (vectors). Throws Shape for
/// fewer than edge_order + 1 samples.
TD_API std::vector<Tensor> gradient(const Tensor& x, double spacing = 1, IntList dim = {},
                                    int64_t edge_order = 1,
                                    SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> gradient(const Tensor& x, const std::vector<double>& spacing,
                                    IntList dim = {}, int64_t edge_order = 1,
                                    SourceLocation loc = SourceLocation::here());
TD_API std::vector<Tensor> gradient(const Tensor& x, const std::vector<Tensor>& coordinates,
                                    IntList dim = {}, int64_t edge_order = 1,
                                    SourceLocation loc = SourceLocation::here());

/// The p-norm of a - b.
TD_API Tensor dist(const Tensor& a, const Tensor& b, double p = 2,
                   SourceLocation loc = SourceLocation::here());

struct HistogramddResult {
  Tensor hist;                    ///< [*bins]
  std::vector<Tensor> bin_edges;  ///< per dimension [bins + 1]
  template <class V>
  void fields(V& v) {
    v("hist", hist);
    v("bin_edges", bin_edges);
  }
};
/// Histogram of the points x [..., d] over d dimensions: `bins` per dimension (one number for all),
/// `range` the least and largest coordinate of each dimension (by default those of x). Counts, or
/// sums of `weight` [...]; density: divided by total and volume.
TD_API HistogramddResult histogramdd(const Tensor& x, IntList bins,
                                     const std::vector<double>& range = {},
                                     const Tensor& weight = {}, bool density = false,
                                     SourceLocation loc = SourceLocation::here());

}  // namespace tandem
