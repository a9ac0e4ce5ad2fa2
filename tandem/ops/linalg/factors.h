// SPDX-License-Identifier: Apache-2.0
// More of torch.linalg and of torch's older decompositions: variants that report failures as
// numbers, LDL, products of Householder reflections, roots, tensor equations, low rank.
#pragma once

#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::linalg {

// ---- variants without errors: `info` (int32 [...]) is 0 where a matrix could be handled, else the
// number (from 1) of the first pivot that is zero or, for cholesky_ex, of the first leading minor
// that is not positive definite; the other results are NaN there. With check_errors they throw
// Value after all.
TD_API CholeskyExResult cholesky_ex(const Tensor& A, bool upper = false, bool check_errors = false,
                                    SourceLocation loc = SourceLocation::here());
TD_API InvExResult inv_ex(const Tensor& A, bool check_errors = false,
                          SourceLocation loc = SourceLocation::here());
TD_API SolveExResult solve_ex(const Tensor& A, const Tensor& B, bool left = true,
                              bool check_errors = false,
                              SourceLocation loc = SourceLocation::here());
TD_API LuFactorExResult lu_factor_ex(const Tensor& A, bool pivot = true, bool check_errors = false,
                                     SourceLocation loc = SourceLocation::here());

// ---- symmetric, not definite
/// A = L D L^T with unit lower triangular L and blocks of one or two on D, by the method of Bunch
/// and Kaufman in the form of LAPACK's sytrf: LD holds both, pivots (int32) are negative for
/// blocks of two. Only the lower triangle of A is read. No derivative.
TD_API LdlFactorResult ldl_factor(const Tensor& A, SourceLocation loc = SourceLocation::here());
TD_API LdlFactorExResult ldl_factor_ex(const Tensor& A, bool check_errors = false,
                                       SourceLocation loc = SourceLocation::here());
/// X with A X = B, B [..., n, k], from ldl_factor(A). Differentiable with respect to B.
TD_API Tensor ldl_solve(const Tensor& LD, const Tensor& pivots, const Tensor& B,
                        SourceLocation loc = SourceLocation::here());

// ---- reflections
/// The first n columns of the product of the reflections I - tau[i] v v^T, where v is column i of A
/// [..., m, n] below a one on the diagonal.
TD_API Tensor householder_product(const Tensor& A, const Tensor& tau,
                                  SourceLocation loc = SourceLocation::here());

// ---- functions of matrices
/// The symmetric X with X X = A for a symmetric positive definite A, whose lower triangle is read.
TD_API Tensor matrix_sqrth(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// A [..., m, n] = U H with orthonormal columns of U and a symmetric H without negative
/// eigenvalues, m >= n.
TD_API PolarResult polar(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// The tensor X with tensordot(tensorinv(A), B, ind) solving A X = B; the first `ind` dimensions of
/// A have as many elements as the others.
TD_API Tensor tensorinv(const Tensor& A, int64_t ind = 2,
                        SourceLocation loc = SourceLocation::here());
/// X with tensordot(A, X, X.dim()) = B; `dims` of A are moved to its end first.
TD_API Tensor tensorsolve(const Tensor& A, const Tensor& B, IntList dims = {},
                          SourceLocation loc = SourceLocation::here());

// ---- linalg's forms of functions that torch has too
/// Cross product along `dim`, which has size 3; the others broadcast.
TD_API Tensor cross(const Tensor& x, const Tensor& y, int64_t dim = -1,
                    SourceLocation loc = SourceLocation::here());
/// The diagonals of matrices.
TD_API Tensor diagonal(const Tensor& A, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1,
                       SourceLocation loc = SourceLocation::here());
/// Increasing powers x^0 ... x^(N - 1) as a new last dimension; N defaults to the size of the last
/// dimension of x.
TD_API Tensor vander(const Tensor& x, std::optional<int64_t> N = {},
                     SourceLocation loc = SourceLocation::here());
using tandem::matmul;

}  // namespace tandem::linalg

namespace tandem {

// ---- names that torch has outside linalg
using linalg::cholesky;
using linalg::cholesky_inverse;
using linalg::cholesky_solve;
using linalg::det;
using linalg::logdet;
using linalg::matrix_exp;
using linalg::matrix_power;
using linalg::slogdet;

/// P, L and U from LU and pivots, see linalg::lu and linalg::lu_factor.
TD_API LuResult lu_unpack(const Tensor& LU_data, const Tensor& LU_pivots,
                          SourceLocation loc = SourceLocation::here());
/// linalg::lu_factor under its older name.
TD_API LuFactorResult lu(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// X with A X = b from lu(A).
TD_API Tensor lu_solve(const Tensor& b, const Tensor& LU_data, const Tensor& LU_pivots,
                       SourceLocation loc = SourceLocation::here());
/// A = U diag(S) V^T; `some`: without the columns that A does not need.
TD_API SvdResult svd(const Tensor& A, bool some = true,
                     SourceLocation loc = SourceLocation::here());
/// The inverse of A; the pseudo-inverse, where singular values up to rcond times the largest count
/// as zero.
TD_API Tensor inverse(const Tensor& A, SourceLocation loc = SourceLocation::here());
TD_API Tensor pinverse(const Tensor& A, double rcond = 1e-15,
                       SourceLocation loc = SourceLocation::here());
/// The QR decomposition as LAPACK's geqrf leaves it: R above the diagonal, below it the
/// reflections whose product linalg::householder_product forms.
TD_API GeqrfResult geqrf(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// linalg::householder_product under its older name.
TD_API Tensor orgqr(const Tensor& A, const Tensor& tau,
                    SourceLocation loc = SourceLocation::here());
/// Q C (C Q unless `left`), or with Q^T, for the whole square Q of the reflections in A and tau.
TD_API Tensor ormqr(const Tensor& A, const Tensor& tau, const Tensor& C, bool left = true,
                    bool transpose = false, SourceLocation loc = SourceLocation::here());
/// X with A X = b for a triangular A, and A itself; `transpose`: with A^T.
TD_API TriangularSolveResult triangular_solve(const Tensor& b, const Tensor& A, bool upper = true,
                                              bool transpose = false, bool unitriangular = false,
                                              SourceLocation loc = SourceLocation::here());
/// The k largest (smallest) eigenvalues of a symmetric A and their vectors, of A
/// x = lambda B x if a positive definite B is given. Computed by eigh, not by iteration.
TD_API EighResult lobpcg(const Tensor& A, int64_t k = 1, const Tensor& B = {}, bool largest = true,
                         SourceLocation loc = SourceLocation::here());
/// About the q largest singular values of A [- M] and their vectors, by niter steps of
/// subspace iteration from random vectors (Halko et al., 2009).
TD_API SvdResult svd_lowrank(const Tensor& A, int64_t q = 6, int64_t niter = 2,
                             const Tensor& M = {}, SourceLocation loc = SourceLocation::here());
/// The same of A [..., m, n] minus the mean of its rows; q defaults to min(6, m, n).
TD_API SvdResult pca_lowrank(const Tensor& A, std::optional<int64_t> q = {}, bool center = true,
                             int64_t niter = 2, SourceLocation loc = SourceLocation::here());

namespace op {
/// ldl_factor: A -> LD, pivots (i32). ldl_solve: LD, pivots, B -> X.
extern TD_API const OpDef ldl_factor, ldl_solve;
}  // namespace op
/// The rows of this file.
TD_API std::span<const OpDef* const> factor_rows();

}  // namespace tandem
