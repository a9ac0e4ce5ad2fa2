// SPDX-License-Identifier: Apache-2.0
// Linear algebra on stacks of matrices [..., m, n] of float32 or float64, with torch.linalg's
// names, arguments and defaults. Leading dimensions are a batch. Derivatives follow M. Giles,
// "Collected matrix derivative results" (2008), and PyTorch's documentation where decompositions
// are not unique. A matrix that a function cannot handle (singular, not positive definite, not
// finite) throws Value with its index in the stack.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem::linalg {

/// L with A = L L^T, lower; or U with A = U^T U. Only that triangle of A is read; the gradient is
/// that of a symmetric A. Throws Value unless A is positive definite.
TD_API Tensor cholesky(const Tensor& A, bool upper = false,
                       SourceLocation loc = SourceLocation::here());
/// X with A X = B, where L is the Cholesky factor of A (torch.cholesky_solve).
TD_API Tensor cholesky_solve(const Tensor& B, const Tensor& L, bool upper = false,
                             SourceLocation loc = SourceLocation::here());
/// The inverse of the matrix whose Cholesky factor is L (torch.cholesky_inverse).
TD_API Tensor cholesky_inverse(const Tensor& L, bool upper = false,
                               SourceLocation loc = SourceLocation::here());

/// X with A X = B (or X A = B). B is [..., n, k], or a vector [n] or a stack of vectors of A's
/// leading dimensions. Throws Value if A is singular.
TD_API Tensor solve(const Tensor& A, const Tensor& B, bool left = true,
                    SourceLocation loc = SourceLocation::here());
/// The same for a triangular A, of which one triangle is read; `unitriangular`: its diagonal is
/// taken as ones. A zero on the diagonal gives infinities, as in PyTorch.
TD_API Tensor solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left = true,
                               bool unitriangular = false,
                               SourceLocation loc = SourceLocation::here());
/// LU: both factors of A = P L U in one matrix [..., m, n]; pivots: LAPACK's (int32
/// [..., min(m, n)], counted from 1).
TD_API LuFactorResult lu_factor(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// A = P L U: [..., m, m], [..., m, k], [..., k, n] with k = min(m, n).
TD_API LuResult lu(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// X with A X = B from lu_factor(A).
TD_API Tensor lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B,
                       SourceLocation loc = SourceLocation::here());
/// Throws Value if A is singular.
TD_API Tensor inv(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// Moore-Penrose inverse. Singular values up to max(atol, rtol * the largest) count as zero; rtol
/// defaults to max(m, n) * epsilon, and to 0 if atol is given.
TD_API Tensor pinv(const Tensor& A, std::optional<double> atol = {},
                   std::optional<double> rtol = {}, SourceLocation loc = SourceLocation::here());
TD_API Tensor det(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// Sign and log |det|; 0 and -infinity if A is singular.
TD_API SlogdetResult slogdet(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// log(det); NaN if the determinant is negative (torch.logdet).
TD_API Tensor logdet(const Tensor& A, SourceLocation loc = SourceLocation::here());

/// A = Q R. mode "reduced": Q is [m, k], R [k, n], k = min(m, n); "complete": Q is [m,
/// m], R [m, n], differentiable for m <= n; "r": no Q (empty).
TD_API QrResult qr(const Tensor& A, std::string_view mode = "reduced",
                   SourceLocation loc = SourceLocation::here());
/// A = U diag(S) Vh, S decreasing. The largest entry of each column of U is
/// positive. Derivatives with respect to U and Vh need distinct singular values; with full_matrices
/// only S has one unless A is square.
TD_API LinalgSvdResult svd(const Tensor& A, bool full_matrices = true,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor svdvals(const Tensor& A, SourceLocation loc = SourceLocation::here());
/// Increasing eigenvalues and, in columns, eigenvectors of a symmetric A, of which the triangle
/// UPLO ("L" or "U") is read. The gradient of the vectors needs distinct values.
TD_API EighResult eigh(const Tensor& A, std::string_view UPLO = "L",
                       SourceLocation loc = SourceLocation::here());
TD_API Tensor eigvalsh(const Tensor& A, std::string_view UPLO = "L",
                       SourceLocation loc = SourceLocation::here());
/// Eigenvalues of a general matrix are complex, and there is no complex dtype: throws Unsupported.
TD_API EighResult eig(const Tensor& A, SourceLocation loc = SourceLocation::here());
TD_API Tensor eigvals(const Tensor& A, SourceLocation loc = SourceLocation::here());

/// solution: the X of least norm that minimises |A X - B|; B as in solve. residuals [..., k]: sums
/// of squares; empty unless m > n and all ranks are full, and for "gelsy". rank: int64 [...]; empty
/// for "gels". singular_values [..., min(m, n)]: of "gelsd" and "gelss", else empty. Driver "gels":
/// by QR, for full rank; "gelsy": likewise if the rank is full, else through the singular values,
/// which "gelsd" and "gelss" always use. In a trace "gelsy" uses them too. Singular values up to
/// rcond times the largest count as zero.
TD_API LstsqResult lstsq(const Tensor& A, const Tensor& B, std::optional<double> rcond = {},
                         std::string_view driver = "gelsy",
                         SourceLocation loc = SourceLocation::here());
/// The number of singular values above the limit of pinv (int64).
TD_API Tensor matrix_rank(const Tensor& A, std::optional<double> atol = {},
                          std::optional<double> rtol = {},
                          SourceLocation loc = SourceLocation::here());
/// The n-th power of A; n < 0: of its inverse.
TD_API Tensor matrix_power(const Tensor& A, int64_t n, SourceLocation loc = SourceLocation::here());
TD_API Tensor matrix_exp(const Tensor& A, SourceLocation loc = SourceLocation::here());

/// A number, or one of "fro", "nuc".
using Order = std::variant<double, std::string_view>;
/// The norm of the matrices in dims `dim`: "fro", "nuc", 2, -2 (singular values), 1, -1 (column
/// sums), infinity, -infinity (row sums).
TD_API Tensor matrix_norm(const Tensor& A, Order ord = "fro", IntList dim = {-2, -1},
                          bool keepdim = false, SourceLocation loc = SourceLocation::here());
/// (sum of |x|^ord)^(1/ord); 0 counts the nonzero elements.
TD_API Tensor vector_norm(const Tensor& x, double ord = 2, IntList dim = {}, bool keepdim = false,
                          SourceLocation loc = SourceLocation::here());
/// torch.linalg.norm: without `ord` the 2-norm of all elements (or along `dim`); with it a matrix
/// norm for two dims, else a vector norm.
TD_API Tensor norm(const Tensor& A, std::optional<Order> ord = {}, IntList dim = {},
                   bool keepdim = false, SourceLocation loc = SourceLocation::here());
/// Condition number: norm(A) * norm(inv(A)); without p the ratio of the extreme singular values.
TD_API Tensor cond(const Tensor& A, std::optional<Order> p = {},
                   SourceLocation loc = SourceLocation::here());
/// Matrix chain product in the cheapest order; the first and last may be vectors.
TD_API Tensor multi_dot(const std::vector<Tensor>& tensors,
                        SourceLocation loc = SourceLocation::here());
/// Sum of products along `dim`.
TD_API Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim = -1,
                     SourceLocation loc = SourceLocation::here());

// ---- rows
struct CholeskyAttrs {  ///< for cholesky and eigh
  bool upper = false;
  template <class V>
  void fields(V& v) {
    v("upper", upper);
  }
};
struct TriangularAttrs {
  bool upper = false, unitriangular = false;
  template <class V>
  void fields(V& v) {
    v("upper", upper);
    v("unitriangular", unitriangular);
  }
};
struct QrAttrs {
  bool complete = false;
  template <class V>
  void fields(V& v) {
    v("complete", complete);
  }
};
struct SvdAttrs {
  bool full_matrices = false;
  template <class V>
  void fields(V& v) {
    v("full_matrices", full_matrices);
  }
};
struct PinvAttrs {
  double atol = 0;
  double rtol = -1;  ///< negative: the default
  template <class V>
  void fields(V& v) {
    v("atol", atol);
    v("rtol", rtol);
  }
};

}  // namespace tandem::linalg

namespace tandem {
namespace op {
/// lu_permutation: pivots -> for each row of the factors its row in A (int64); shape[0], if given,
/// is the number of rows. cofactor: the derivative of det.
extern TD_API const OpDef cholesky, solve_triangular, lu_factor, lu_permutation, solve, inv, det,
    slogdet, cofactor, qr, eigh, svd, pinv, matrix_exp;
}  // namespace op
/// The rows of this family.
TD_API std::span<const OpDef* const> linalg_rows();
}  // namespace tandem
