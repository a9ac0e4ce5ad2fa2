// SPDX-License-Identifier: Apache-2.0
// Products, distances and arrangements of vectors and matrices beside matmul.h, with PyTorch's
// names, arguments and defaults.
#pragma once

#include <optional>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

// ---- products
/// Cross product along `dim`, of size 3; without dim the first dimension of that size.
TD_API Tensor cross(const Tensor& x, const Tensor& y, std::optional<int64_t> dim = {},
                    Where where = Where::here());
/// Kronecker product; the ranks may differ.
TD_API Tensor kron(const Tensor& x, const Tensor& y, Where where = Where::here());
/// Products summed over the last dimension of both: [..., n] and [..., n].
TD_API Tensor inner(const Tensor& x, const Tensor& y, Where where = Where::here());
/// The dot product of two vectors.
TD_API Tensor vdot(const Tensor& x, const Tensor& y, Where where = Where::here());
/// beta * input + alpha * (a @ v).
TD_API Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& v, Scalar beta = 1,
                    Scalar alpha = 1, Where where = Where::here());
/// beta * input + alpha * outer(v, w).
TD_API Tensor addr(const Tensor& input, const Tensor& v, const Tensor& w, Scalar beta = 1,
                   Scalar alpha = 1, Where where = Where::here());
/// beta * input + alpha * the sum over b of a[b] @ c[b].
TD_API Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& c, Scalar beta = 1,
                     Scalar alpha = 1, Where where = Where::here());
/// Sum of the diagonal of a matrix.
TD_API Tensor trace(const Tensor& x, Where where = Where::here());

// ---- distances
/// Distances |x1[i] - x2[j]|_p of the rows of x1 [..., p, m] and x2 [..., r, m]: [..., p, r].
/// The gradient where the distance is 0 is 0.
TD_API Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2, Where where = Where::here());
/// Distances of the pairs i < j of rows of x [n, m]: [n (n - 1) / 2].
TD_API Tensor pdist(const Tensor& x, double p = 2, Where where = Where::here());
/// x with the p-norm of each slice along `dim` cut to maxnorm.
TD_API Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm,
                     Where where = Where::here());

// ---- arrangements
/// The last dimension as the diagonal number `offset` of new dimensions dim1 and dim2.
TD_API Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1,
                         Where where = Where::here());
/// All elements on the diagonal of a matrix.
TD_API Tensor diagflat(const Tensor& x, int64_t offset = 0, Where where = Where::here());
/// Matrices (vectors are rows) along the diagonal of one matrix, zeros elsewhere.
TD_API Tensor block_diag(const std::vector<Tensor>& tensors, Where where = Where::here());
/// Powers of x [n]: [n, N], falling to x^0 in the last column, or rising.
TD_API Tensor vander(const Tensor& x, std::optional<int64_t> N = {}, bool increasing = false,
                     Where where = Where::here());
/// All ways to take one element of each vector: [product of the sizes, number of vectors].
TD_API Tensor cartesian_prod(const std::vector<Tensor>& tensors, Where where = Where::here());
/// All ways to take r elements of a vector, in its order.
TD_API Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false,
                           Where where = Where::here());

// ---- rows
namespace op {
/// Euclidean distances: x1 [..., p, m], x2 [..., r, m] of equal leading dims.
extern TD_API const OpDef cdist;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> matrix_rows();

}  // namespace tandem
