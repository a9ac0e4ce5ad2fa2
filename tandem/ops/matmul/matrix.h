// SPDX-License-Identifier: Apache-2.0
// More products, distances and constructions of vectors and matrices (see also matmul.h), with
// PyTorch's names, arguments and defaults.
#pragma once

#include <optional>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

// ---- products
// Cross product along `dim`, of size 3; without dim, the first dimension of that size.
TD_API Tensor cross(const Tensor& x, const Tensor& y, std::optional<int64_t> dim = {},
                    SourceLocation loc = SourceLocation::here());
/// Kronecker product; the ranks may differ.
TD_API Tensor kron(const Tensor& x, const Tensor& y, SourceLocation loc = SourceLocation::here());
/// Dot products along the last dimension of both: [..., n] and [..., n].
TD_API Tensor inner(const Tensor& x, const Tensor& y, SourceLocation loc = SourceLocation::here());
/// The dot product of two vectors.
TD_API Tensor vdot(const Tensor& x, const Tensor& y, SourceLocation loc = SourceLocation::here());
/// beta * input + alpha * (a @ v).
TD_API Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, Scalar beta = 1,
                    Scalar alpha = 1, SourceLocation loc = SourceLocation::here());
/// beta * input + alpha * outer(v, w).
TD_API Tensor addr(const Tensor& input, const Tensor& v, const Tensor& w, Scalar beta = 1,
                   Scalar alpha = 1, SourceLocation loc = SourceLocation::here());
/// beta * input + alpha * the sum over b of a[b] @ c[b].
TD_API Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& c, Scalar beta = 1,
                     Scalar alpha = 1, SourceLocation loc = SourceLocation::here());
/// Sum of the diagonal of a matrix.
TD_API Tensor trace(const Tensor& x, SourceLocation loc = SourceLocation::here());

// ---- distances
// Distances |x1[i] - x2[j]|_p of the rows of x1 [..., p, m] and x2 [..., r, m]: [..., p, r]. The
// gradient is 0 where the distance is 0.
TD_API Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2,
                    SourceLocation loc = SourceLocation::here());
/// Distances of the pairs i < j of rows of x [n, m]: [n (n - 1) / 2].
TD_API Tensor pdist(const Tensor& x, double p = 2, SourceLocation loc = SourceLocation::here());
/// x with the p-norm of each slice along `dim` limited to maxnorm.
TD_API Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm,
                     SourceLocation loc = SourceLocation::here());

// ---- constructions
// The last dimension as diagonal `offset` of the new dimensions dim1 and dim2.
TD_API Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1,
                         SourceLocation loc = SourceLocation::here());
/// All elements on the diagonal of a matrix.
TD_API Tensor diagflat(const Tensor& x, int64_t offset = 0,
                       SourceLocation loc = SourceLocation::here());
/// Matrices (vectors are rows) along the diagonal of one matrix, zeros elsewhere.
TD_API Tensor block_diag(const std::vector<Tensor>& tensors,
                         SourceLocation loc = SourceLocation::here());
/// Powers of x [n]: [n, N], decreasing to x^0 in the last column, or increasing.
TD_API Tensor vander(const Tensor& x, std::optional<int64_t> N = {}, bool increasing = false,
                     SourceLocation loc = SourceLocation::here());
/// All combinations of one element from each vector: [product of the sizes, number of vectors].
TD_API Tensor cartesian_prod(const std::vector<Tensor>& tensors,
                             SourceLocation loc = SourceLocation::here());
/// All combinations of r elements of a vector, in its order.
TD_API Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false,
                           SourceLocation loc = SourceLocation::here());

// ---- rows
namespace op {
/// Euclidean distances: x1 [..., p, m], x2 [..., r, m] of equal leading dims.
extern TD_API const OpDef cdist;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> matrix_rows();

}  // namespace tandem
