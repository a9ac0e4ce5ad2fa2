// SPDX-License-Identifier: Apache-2.0
// Composed of the rows of linalg.h. Names that linalg and torch share are qualified throughout.
#include "tandem/ops/linalg/factors.h"

#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matrix.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using tandem::detail::composed;

Tensor turned(const Tensor& x) { return transpose(x, -2, -1); }

void want_square(const Tensor& A) {
  TD_CHECK(A.dim() >= 2 && dims_equal(A.shape(-2), A.shape(-1)), Shape,
           "expected square matrices, got shape {}", A.shape().to_string());
}
void want_matrix(const Tensor& A) {
  TD_CHECK(A.dim() >= 2, Shape, "expected a matrix or a stack of them, got shape {}",
           A.shape().to_string());
}
Tensor as_matrix_flags(const Tensor& v) { return unsqueeze(unsqueeze(v, -1), -1); }

// The number (from 1) of the first true element of the last dimension, 0 if there is none (int32).
Tensor first_true(const Tensor& x) {
  if (x.shape(-1) == Dim(0)) return sum(x, {-1}).to(DType::i32);
  return where(any(x, {-1}), argmax(x.to(DType::i32), -1) + 1, 0).to(DType::i32);
}

void check_info(const Tensor& info, bool check, const char* what) {
  if (!check || info.is_symbolic()) return;
  const Tensor bad = info != 0;
  if (!any(bad).item<bool>()) return;
  const int64_t i = argmax(reshape(bad, Shape(-1)).to(DType::i32)).item<int64_t>();
  TD_CHECK(false, Value, "matrix {} {} (info {})", i, what,
           reshape(info, Shape(-1))[i].item<int64_t>());
}

// f of the matrices, with the identity in place of those that `info` marks; NaN for these.
template <class F>
Tensor where_possible(const Tensor& A, const Tensor& info, F&& f) {
  const Tensor ok = as_matrix_flags(info == 0);
  const Tensor y = f(where(ok, A, eye(A.size(-1), -1, A.dtype())));
  return where(ok, y, std::nan(""));
}

Tensor zero_pivots(const Tensor& A) {
  want_square(A);
  const auto [lu, pivots] = linalg::lu_factor(A.detach());
  return first_true(tandem::diagonal(lu, 0, -2, -1) == 0);
}

// The first leading minor that is not positive definite, by elimination: its pivot is not positive.
Tensor first_indefinite(Tensor A) {
  NoGradGuard no_grad;
  const int64_t n = A.size(-1);
  A = A + turned(tril(A, -1));
  std::vector<Tensor> bad;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor column = narrow(A, -1, k, 1), pivot = narrow(column, -2, k, 1);
    bad.push_back(logical_not(reshape(pivot, [&] {
                                Shape s = A.shape();
                                s.erase(s.rank() - 1);
                                s[s.rank() - 1] = 1;
                                return s;
                              }()) > 0));
    A = A - matmul(column, turned(column)) / pivot;
  }
  if (bad.empty()) return first_true(zeros(Shape(0), DType::b8));
  return first_true(cat(bad, -1));
}

// Applies I - tau v v^T for each column v of `vectors`, the last one first, or in turn.
Tensor reflect(const Tensor& vectors, const Tensor& tau, Tensor y, bool last_first) {
  const int64_t k = tau.size(-1);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = last_first ? k - 1 - i : i;
    const Tensor v = narrow(vectors, -1, at, 1), t = unsqueeze(narrow(tau, -1, at, 1), -1);
    y = y - matmul(t * v, matmul(turned(v), y));
  }
  return y;
}
// The vectors of reflections: below a one on the diagonal.
Tensor reflection_vectors(const Tensor& A, int64_t k) {
  return tril(narrow(A, -1, 0, k), -1) + eye(A.size(-2), k, A.dtype());
}
void want_reflections(const Tensor& A, const Tensor& tau) {
  want_matrix(A);
  TD_CHECK(tau.dim() + 1 == A.dim() && tau.size(-1) <= A.size(-1) && A.size(-1) <= A.size(-2),
           Shape, "A is {}, tau {}: expected [..., m, n] and [..., k] with k <= n <= m",
           A.shape().to_string(), tau.shape().to_string());
}

int64_t elements(const Shape& s, int first, int last) {
  return tandem::detail::product(s, first, last).value();
}

}  // namespace

namespace linalg {

CholeskyExResult cholesky_ex(const Tensor& A, bool upper, bool check_errors, SourceLocation loc) {
  return composed("cholesky_ex", loc, A, [&]() -> CholeskyExResult {
    want_square(A);
    Shape stack = A.shape();
    stack.resize(stack.rank() - 2);
    if (!A.is_symbolic()) {
      try {  // the usual case needs no second elimination
        return {linalg::cholesky(A, upper), zeros(stack, DType::i32)};
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::Value) throw;
      }
    }
    const Tensor lower = upper ? turned(A) : A;
    const Tensor info = first_indefinite(tril(lower.detach()));
    check_info(info, check_errors, "is not positive definite");
    const auto root = [&](const Tensor& a) { return linalg::cholesky(a, upper); };
    return {where_possible(A, info, root), info};
  });
}

InvExResult inv_ex(const Tensor& A, bool check_errors, SourceLocation loc) {
  return composed("inv_ex", loc, A, [&]() -> InvExResult {
    const Tensor info = zero_pivots(A);
    check_info(info, check_errors, "is singular");
    return {where_possible(A, info, [](const Tensor& a) { return linalg::inv(a); }), info};
  });
}

SolveExResult solve_ex(const Tensor& A, const Tensor& B, bool left, bool check_errors,
                       SourceLocation loc) {
  return composed("solve_ex", loc, A, [&]() -> SolveExResult {
    const Tensor info = zero_pivots(A);
    check_info(info, check_errors, "is singular");
    const Tensor ok = info == 0;
    const Tensor a = where(as_matrix_flags(ok), A, eye(A.size(-1), -1, A.dtype()));
    const Tensor x = linalg::solve(a, B, left);
    const bool vector = x.dim() == A.dim() - 1;
    return {where(vector ? unsqueeze(ok, -1) : as_matrix_flags(ok), x, std::nan("")), info};
  });
}

LuFactorExResult lu_factor_ex(const Tensor& A, bool pivot, bool check_errors, SourceLocation loc) {
  return composed("lu_factor_ex", loc, A, [&]() -> LuFactorExResult {
    TD_CHECK(pivot, Unsupported, "a decomposition without pivots is not there");
    const auto [lu, pivots] = linalg::lu_factor(A);
    const Tensor info = first_true(tandem::diagonal(lu.detach(), 0, -2, -1) == 0);
    check_info(info, check_errors, "is singular");
    return {lu, pivots, info};
  });
}

LdlFactorResult ldl_factor(const Tensor& A, SourceLocation loc) {
  return detail::named("ldl_factor", loc, [&]() -> LdlFactorResult {
    const LdlFactorExResult r = ldl_factor_ex(A, true, loc);
    return {r.LD, r.pivots};
  });
}

LdlFactorExResult ldl_factor_ex(const Tensor& A, bool check_errors, SourceLocation loc) {
  return composed("ldl_factor_ex", loc, A, [&]() -> LdlFactorExResult {
    Operand in[] = {Operand(A)};
    Tensor out[kMaxOpOuts];
    apply(op::ldl_factor, nullptr, in, out, SourceLocation::here());
    // Within a block of two the diagonal may be zero.
    const Tensor zero = tandem::diagonal(out[0], 0, -2, -1) == 0;
    const Tensor info = first_true(logical_and(zero, out[1] > 0));
    check_info(info, check_errors, "is singular");
    return {out[0], out[1], info};
  });
}

Tensor ldl_solve(const Tensor& LD, const Tensor& pivots, const Tensor& B, SourceLocation loc) {
  return call(op::ldl_solve, nullptr, loc, LD, pivots, B);
}

Tensor householder_product(const Tensor& A, const Tensor& tau, SourceLocation loc) {
  return composed("householder_product", loc, A, [&] {
    want_reflections(A, tau);
    const Tensor v = reflection_vectors(A, tau.size(-1));
    return reflect(v, tau, expand(eye(A.size(-2), A.size(-1), A.dtype()), A.shape()), true);
  });
}

Tensor matrix_sqrth(const Tensor& A, SourceLocation loc) {
  return composed("matrix_sqrth", loc, A, [&] {
    const auto [values, vectors] = linalg::eigh(A);
    return matmul(vectors * unsqueeze(sqrt(values), -2), turned(vectors));
  });
}

PolarResult polar(const Tensor& A, SourceLocation loc) {
  return composed("polar", loc, A, [&]() -> PolarResult {
    want_matrix(A);
    TD_CHECK(A.size(-2) >= A.size(-1), Shape, "expected at least as many rows as columns, A is {}",
             A.shape().to_string());
    const auto [u, s, vh] = linalg::svd(A, false);
    return {matmul(u, vh), matmul(turned(vh) * unsqueeze(s, -2), vh)};
  });
}

Tensor tensorinv(const Tensor& A, int64_t ind, SourceLocation loc) {
  return composed("tensorinv", loc, A, [&] {
    TD_CHECK(ind > 0 && ind <= A.dim(), Value, "ind is {}, A has {} dimensions", ind, A.dim());
    const int split = static_cast<int>(ind);
    const int64_t n = elements(A.shape(), 0, split), m = elements(A.shape(), split, A.dim());
    TD_CHECK(n == m, Shape,
             "the first {} dimensions of A {} have {} elements, the others {}: they must agree",
             ind, A.shape().to_string(), n, m);
    Shape out;
    for (int d = split; d < A.dim(); ++d) out.push_back(A.shape(d));
    for (int d = 0; d < split; ++d) out.push_back(A.shape(d));
    return reshape(linalg::inv(reshape(A, Shape(n, m))), out);
  });
}

Tensor tensorsolve(const Tensor& A, const Tensor& B, IntList dims, SourceLocation loc) {
  return composed("tensorsolve", loc, A, [&] {
    Tensor a = A;
    if (!dims.empty()) {
      IntList end;
      for (int i = 0; i < dims.rank(); ++i) end.push_back(A.dim() - dims.rank() + i);
      a = movedim(A, dims, end);
    }
    Shape out;
    for (int d = B.dim(); d < a.dim(); ++d) out.push_back(a.shape(d));
    const int64_t n = B.numel(), m = elements(out, 0, out.rank());
    TD_CHECK(n == m && a.numel() == n * m, Shape,
             "A is {}, B is {}: A must begin with B's shape and hold the square of its elements",
             a.shape().to_string(), B.shape().to_string());
    return reshape(linalg::solve(reshape(a, Shape(n, m)), reshape(B, Shape(n))), out);
  });
}

Tensor cross(const Tensor& x, const Tensor& y, int64_t dim, SourceLocation loc) {
  return composed("cross", loc, x, [&] {
    const std::vector<Tensor> both = broadcast_tensors({x, y});
    return tandem::cross(both[0], both[1], dim);
  });
}
Tensor diagonal(const Tensor& A, int64_t offset, int64_t dim1, int64_t dim2, SourceLocation loc) {
  return tandem::diagonal(A, offset, dim1, dim2, loc);
}
Tensor vander(const Tensor& x, std::optional<int64_t> N, SourceLocation loc) {
  return composed("vander", loc, x, [&] {
    TD_CHECK(x.dim() >= 1, Shape, "expected a vector or a stack of them, got a 0-d tensor");
    const int64_t n = N.value_or(x.size(-1));
    TD_CHECK(n > 1, Value, "N is {}, expected at least 2", n);
    Shape s = x.shape();
    s.push_back(n - 1);
    const Tensor v = x.dtype() == DType::b8 ? x.to(DType::i64) : x;
    const Tensor powers = cumprod(expand(unsqueeze(v, -1), s), -1);
    return cat({ones_like(unsqueeze(v, -1)), powers}, -1);
  });
}

}  // namespace linalg

LuResult lu_unpack(const Tensor& LU_data, const Tensor& LU_pivots, SourceLocation loc) {
  return composed("lu_unpack", loc, LU_data, [&]() -> LuResult {
    want_matrix(LU_data);
    const int64_t m = LU_data.size(-2), k = std::min(m, LU_data.size(-1));
    const ShapeAttrs length{{m}};
    const Tensor rows = call(op::lu_permutation, &length, SourceLocation::here(), LU_pivots);
    // Column i of P has its one in the row of A that became row i of the factors.
    return {turned(one_hot(rows, m).to(LU_data.dtype())),
            tril(narrow(LU_data, -1, 0, k), -1) + eye(m, k, LU_data.dtype()),
            triu(narrow(LU_data, -2, 0, k))};
  });
}
LuFactorResult lu(const Tensor& A, SourceLocation loc) {
  return detail::named("lu", loc, [&] { return linalg::lu_factor(A, loc); });
}
Tensor lu_solve(const Tensor& b, const Tensor& LU_data, const Tensor& LU_pivots,
                SourceLocation loc) {
  return linalg::lu_solve(LU_data, LU_pivots, b, loc);
}
SvdResult svd(const Tensor& A, bool some, SourceLocation loc) {
  const auto [u, s, vh] = linalg::svd(A, !some, loc);
  return {u, s, transpose(vh, -2, -1, loc)};
}
Tensor inverse(const Tensor& A, SourceLocation loc) {
  return detail::named("inverse", loc, [&] { return linalg::inv(A, loc); });
}
Tensor pinverse(const Tensor& A, double rcond, SourceLocation loc) {
  return detail::named("pinverse", loc, [&] { return linalg::pinv(A, {}, rcond, loc); });
}

GeqrfResult geqrf(const Tensor& A, SourceLocation loc) {
  return composed("geqrf", loc, A, [&]() -> GeqrfResult {
    want_matrix(A);
    const int64_t m = A.size(-2), n = A.size(-1), k = std::min(m, n);
    Tensor r = A;
    std::vector<Tensor> vectors, taus;
    const Tensor row = unsqueeze(arange(m), -1);
    for (int64_t i = 0; i < k; ++i) {
      // Column i becomes a number of its length, with the sign that avoids cancellation.
      const Tensor column = narrow(r, -1, i, 1), top = narrow(column, -2, i, 1);
      const Tensor rest = norm(where(row > i, column, 0.0), 2, {-2}, true);
      const Tensor done = rest == 0;
      const Tensor length = -where(top < 0, -1.0, 1.0) * hypot(top, rest);
      const Tensor safe = where(done, 1.0, length);
      const Tensor tau = where(done, 0.0, (safe - top) / safe);
      const Tensor below = column / where(done, 1.0, top - length);
      const Tensor v = where(row > i, where(done, 0.0, below), where(row == i, 1.0, 0.0));
      r = r - matmul(tau * v, matmul(turned(v), r));
      vectors.push_back(v);
      taus.push_back(squeeze(tau, -1));
    }
    if (k == 0) return {A, narrow(sum(A, {-2}), -1, 0, 0)};
    Tensor lower = tril(cat(vectors, -1), -1);
    if (k < n) lower = pad(lower, {0, n - k});
    return {triu(r) + lower, cat(taus, -1)};
  });
}
Tensor orgqr(const Tensor& A, const Tensor& tau, SourceLocation loc) {
  return detail::named("orgqr", loc, [&] { return linalg::householder_product(A, tau, loc); });
}
Tensor ormqr(const Tensor& A, const Tensor& tau, const Tensor& C, bool left, bool transpose,
             SourceLocation loc) {
  return composed("ormqr", loc, A, [&] {
    want_reflections(A, tau);
    const Tensor v = reflection_vectors(A, tau.size(-1));
    // Q C applies the last reflection first; C Q is the transpose of Q^T C^T.
    if (left) return reflect(v, tau, C, !transpose);
    return turned(reflect(v, tau, turned(C), transpose));
  });
}
TriangularSolveResult triangular_solve(const Tensor& b, const Tensor& A, bool upper, bool transpose,
                                       bool unitriangular, SourceLocation loc) {
  return composed("triangular_solve", loc, b, [&]() -> TriangularSolveResult {
    want_square(A);
    const Tensor a = transpose ? turned(A) : A;
    return {linalg::solve_triangular(a, b, upper != transpose, true, unitriangular), A};
  });
}

EighResult lobpcg(const Tensor& A, int64_t k, const Tensor& B, bool largest, SourceLocation loc) {
  return composed("lobpcg", loc, A, [&]() -> EighResult {
    want_square(A);
    const int64_t n = A.size(-1);
    TD_CHECK(k >= 1 && k <= n, Value, "k is {}, expected 1 to {}", k, n);
    Tensor a = A, root;
    if (B.defined()) {  // with B = L L^T: the eigenvalues of L^-1 A L^-T
      root = linalg::cholesky(B);
      a = linalg::solve_triangular(root, a, false);
      a = turned(linalg::solve_triangular(root, turned(a), false));
    }
    auto [values, vectors] = linalg::eigh(a);
    if (largest) {
      values = flip(narrow(values, -1, n - k, k), {-1});
      vectors = flip(narrow(vectors, -1, n - k, k), {-1});
    } else {
      values = narrow(values, -1, 0, k);
      vectors = narrow(vectors, -1, 0, k);
    }
    if (root.defined()) vectors = linalg::solve_triangular(turned(root), vectors, true);
    return {values, vectors};
  });
}

SvdResult svd_lowrank(const Tensor& A, int64_t q, int64_t niter, const Tensor& M,
                      SourceLocation loc) {
  return composed("svd_lowrank", loc, A, [&]() -> SvdResult {
    want_matrix(A);
    const Tensor a = M.defined() ? A - M : A;
    TD_CHECK(q >= 0 && q <= std::min(a.size(-2), a.size(-1)), Value,
             "q is {}, expected 0 to the smaller size of A {}", q, a.shape().to_string());
    TD_CHECK(niter >= 0, Value, "niter is {}, it must not be negative", niter);
    const auto basis = [](const Tensor& x) { return linalg::qr(x).Q; };
    Tensor range = basis(matmul(a, randn({a.size(-1), q}, a.dtype())));
    for (int64_t i = 0; i < niter; ++i) range = basis(matmul(a, basis(matmul(turned(a), range))));
    const auto [u, s, vh] = linalg::svd(matmul(turned(range), a), false);
    return {matmul(range, u), s, turned(vh)};
  });
}
SvdResult pca_lowrank(const Tensor& A, std::optional<int64_t> q, bool center, int64_t niter,
                      SourceLocation loc) {
  return composed("pca_lowrank", loc, A, [&] {
    want_matrix(A);
    const int64_t k = q.value_or(std::min({int64_t{6}, A.size(-2), A.size(-1)}));
    return svd_lowrank(center ? A - mean(A, {-2}, true) : A, k, niter);
  });
}

}  // namespace tandem
