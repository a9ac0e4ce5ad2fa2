// SPDX-License-Identifier: Apache-2.0
// The functions of torch.linalg: they bring arguments into the form of the rows and combine
// rows.
#include "tandem/ops/linalg/linalg.h"

#include <array>
#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/factors.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::linalg {
namespace {

using detail::named;
using detail::placed;

Tensor mT(const Tensor& x, SourceLocation loc) { return transpose(x, -2, -1, loc); }
Tensor product(const Tensor& a, const Tensor& b, SourceLocation loc) {
  return matmul(a, b, MatmulAttrs{}, loc);
}

template <size_t n>
std::array<Tensor, n> call_many(const OpDef& row, const void* attrs, const Tensor& x,
                                SourceLocation loc) {
  Operand in[] = {Operand(x, loc)};
  Tensor out[kMaxOpOuts];
  apply(row, attrs, in, out, loc);
  std::array<Tensor, n> r;
  for (size_t i = 0; i < n; ++i) r[i] = std::move(out[i]);
  return r;
}

void check_rank(const Tensor& x, const char* name) {
  TD_CHECK(x.dim() >= 2, Shape, "{} must be a matrix or a stack of them, got shape {}", name,
           x.shape().to_string());
}

Shape stack_of(const Shape& s, int dropped) {
  Shape out;
  for (int i = 0; i + dropped < s.rank(); ++i) out.push_back(s[i]);
  return out;
}

// A and B with equal leading dims.
void same_stack(Tensor& a, Tensor& b, SourceLocation loc) {
  const Shape stack = broadcast_shapes(stack_of(a.shape(), 2), stack_of(b.shape(), 2));
  const auto wide = [&](const Tensor& x) {
    Shape s = stack;
    s.push_back(x.shape(-2));
    s.push_back(x.shape(-1));
    return expand(x, s, loc);
  };
  a = wide(a);
  b = wide(b);
}

// Whether B is a vector for each matrix A, as in torch.linalg.solve.
bool is_vector(const Tensor& a, const Tensor& b) {
  if (b.dim() == 1) return true;
  if (b.dim() != a.dim() - 1) return false;
  for (int i = 0; i < b.dim(); ++i)
    if (!dims_equal(b.shape(i), a.shape(i))) return false;
  return true;
}

// Solves with B as matrices, on the requested side.
template <class F>
Tensor solve_with(const char* name, const Tensor& A, const Tensor& B, bool left, SourceLocation loc,
                  F&& solver) {
  return named(name, loc, [&] {
    check_rank(A, "A");
    TD_CHECK(B.dim() >= 1, Shape, "B must have a dimension");
    const bool vector = is_vector(A, B);
    Tensor a = left ? A : mT(A, loc);
    Tensor b = vector ? unsqueeze(B, -1, loc) : left ? B : mT(B, loc);
    same_stack(a, b, loc);
    Tensor x = solver(a, b);
    if (vector) return squeeze(x, -1, loc);
    return left ? x : mT(x, loc);
  });
}

double largest_size(const Tensor& A) {
  return static_cast<double>(std::max(A.size(-2), A.size(-1)));
}
double epsilon_of(const Tensor& A) { return A.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23; }

}  // namespace

Tensor cholesky(const Tensor& A, bool upper, SourceLocation loc) {
  CholeskyAttrs a{upper};
  return call(op::cholesky, &a, loc, A);
}

Tensor cholesky_solve(const Tensor& B, const Tensor& L, bool upper, SourceLocation loc) {
  return named("cholesky_solve", loc, [&] {
    check_rank(L, "L");
    check_rank(B, "B");
    const Tensor l = upper ? mT(L, loc) : L;
    const Tensor y = solve_triangular(l, B, false, true, false, loc);
    return solve_triangular(mT(l, loc), y, true, true, false, loc);
  });
}

Tensor cholesky_inverse(const Tensor& L, bool upper, SourceLocation loc) {
  return named("cholesky_inverse", loc, [&] {
    const DeviceGuard there(L.device());
    check_rank(L, "L");
    return cholesky_solve(eye(L.size(-1), -1, L.dtype(), loc), L, upper, loc);
  });
}

Tensor solve(const Tensor& A, const Tensor& B, bool left, SourceLocation loc) {
  return solve_with("solve", A, B, left, loc, [&](const Tensor& a, const Tensor& b) {
    return call(op::solve, nullptr, loc, a, b);
  });
}

Tensor solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular,
                        SourceLocation loc) {
  return solve_with("solve_triangular", A, B, left, loc, [&](const Tensor& a, const Tensor& b) {
    // On the right side the transpose is solved, whose triangle is the other one.
    TriangularAttrs attrs{left ? upper : !upper, unitriangular};
    return call(op::solve_triangular, &attrs, loc, a, b);
  });
}

LuFactorResult lu_factor(const Tensor& A, SourceLocation loc) {
  auto r = call_many<2>(op::lu_factor, nullptr, A, loc);
  return {r[0], r[1]};
}

LuResult lu(const Tensor& A, SourceLocation loc) {
  return named("lu", loc, [&]() -> LuResult {
    const auto [f, pivots] = lu_factor(A, loc);
    return lu_unpack(f, pivots, loc);
  });
}

Tensor lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, SourceLocation loc) {
  return solve_with("lu_solve", LU, B, true, loc, [&](const Tensor& f, const Tensor& b) {
    const ShapeAttrs same;
    Tensor rows = call(op::lu_permutation, &same, loc, pivots);
    rows = expand(unsqueeze(rows, -1, loc), b.shape(), loc);
    const Tensor moved = gather(b, b.dim() - 2, rows, loc);
    return solve_triangular(f, solve_triangular(f, moved, false, true, true, loc), true, true,
                            false, loc);
  });
}

Tensor inv(const Tensor& A, SourceLocation loc) { return call(op::inv, nullptr, loc, A); }

Tensor pinv(const Tensor& A, std::optional<double> atol, std::optional<double> rtol,
            SourceLocation loc) {
  PinvAttrs a{atol.value_or(0), rtol.value_or(-1)};
  return call(op::pinv, &a, loc, A);
}

Tensor det(const Tensor& A, SourceLocation loc) { return call(op::det, nullptr, loc, A); }

SlogdetResult slogdet(const Tensor& A, SourceLocation loc) {
  auto r = call_many<2>(op::slogdet, nullptr, A, loc);
  return {r[0], r[1]};
}

Tensor logdet(const Tensor& A, SourceLocation loc) {
  return named("logdet", loc, [&] {
    const auto [sign, log_abs] = slogdet(A, loc);
    return where(lt(sign, 0, loc), std::nan(""), log_abs, loc);
  });
}

QrResult qr(const Tensor& A, std::string_view mode, SourceLocation loc) {
  return named("qr", loc, [&]() -> QrResult {
    TD_CHECK(mode == "reduced" || mode == "complete" || mode == "r", Value,
             "mode '{}' must be reduced, complete or r", mode);
    QrAttrs a{mode == "complete"};
    auto r = call_many<2>(op::qr, &a, A, loc);
    if (mode == "r") r[0] = zeros(Shape(0), A.dtype(), loc);
    return {r[0], r[1]};
  });
}

LinalgSvdResult svd(const Tensor& A, bool full_matrices, SourceLocation loc) {
  SvdAttrs a{full_matrices};
  auto r = call_many<3>(op::svd, &a, A, loc);
  return {r[0], r[1], r[2]};
}

Tensor svdvals(const Tensor& A, SourceLocation loc) {
  return named("svdvals", loc, [&] { return linalg::svd(A, false, loc).S; });
}

EighResult eigh(const Tensor& A, std::string_view UPLO, SourceLocation loc) {
  return named("eigh", loc, [&]() -> EighResult {
    TD_CHECK(UPLO == "L" || UPLO == "U" || UPLO == "l" || UPLO == "u", Value,
             "UPLO '{}' must be L or U", UPLO);
    CholeskyAttrs a{UPLO == "U" || UPLO == "u"};
    auto r = call_many<2>(op::eigh, &a, A, loc);
    return {r[0], r[1]};
  });
}

Tensor eigvalsh(const Tensor& A, std::string_view UPLO, SourceLocation loc) {
  return named("eigvalsh", loc, [&] { return eigh(A, UPLO, loc).eigenvalues; });
}

EighResult eig(const Tensor& A, SourceLocation loc) {
  return placed("eig", loc, [&]() -> EighResult {
    TD_CHECK(false, Unsupported,
             "the eigenvalues of a general matrix {} are complex, and there is no complex dtype\n"
             "Use eigh for a symmetric matrix, or svd.",
             A.shape().to_string());
    return {};
  });
}

Tensor eigvals(const Tensor& A, SourceLocation loc) {
  return named("eigvals", loc, [&] { return eig(A, loc).eigenvalues; });
}

namespace {

// Whether the diagonals of R are far enough from 0 that no column of A nearly depends on the
// others.
bool full_rank(const Tensor& r, double limit) {
  if (r.numel() == 0) return true;
  NoGradGuard no_grad;
  const Tensor d = abs(tandem::diagonal(r.detach(), 0, -2, -1));
  return all(gt(amin(d, {-1}), amax(d, {-1}) * limit)).item<bool>();
}

// With A = Q R: R^-1 Q^T B, or for more columns than rows the least-norm Q R^-T B with A^T = Q R.
Tensor solved_by_qr(const Tensor& q, const Tensor& r, const Tensor& b, bool wide,
                    SourceLocation loc) {
  if (wide) return product(q, solve_triangular(mT(r, loc), b, false, true, false, loc), loc);
  return solve_triangular(r, product(mT(q, loc), b, loc), true, true, false, loc);
}

}  // namespace

LstsqResult lstsq(const Tensor& A, const Tensor& B, std::optional<double> rcond,
                  std::string_view driver, SourceLocation loc) {
  return named("lstsq", loc, [&] {
    TD_CHECK(driver == "gelsy" || driver == "gels" || driver == "gelsd" || driver == "gelss", Value,
             "driver is \"{}\"\nUse \"gelsy\", \"gels\", \"gelsd\" or \"gelss\".", driver);
    check_rank(A, "A");
    TD_CHECK(B.dim() >= 1, Shape, "B must have a dimension");
    const bool vector = is_vector(A, B) || (B.dim() == A.dim() - 1);
    Tensor a = A, b = vector ? unsqueeze(B, -1, loc) : B;
    same_stack(a, b, loc);
    TD_CHECK(dims_equal(a.shape(-2), b.shape(-2)), Shape,
             "A is {}, B is {}\nB must have as many rows as A.", A.shape().to_string(),
             B.shape().to_string());
    LstsqResult r;
    r.rank = zeros(Shape(0), DType::i64, loc);
    r.singular_values = zeros(Shape(0), a.dtype(), loc);
    const bool wide = a.size(-2) < a.size(-1), svd_wanted = driver == "gelsd" || driver == "gelss";
    bool full = true;
    // The rank cannot be read in a trace: there only "gels" is solved by QR.
    if (driver == "gels" || (!svd_wanted && !a.is_symbolic())) {
      const auto [q, t] = qr(wide ? mT(a, loc) : a, "reduced", loc);
      const double limit = rcond.value_or(epsilon_of(a) * largest_size(a));
      full = driver == "gels" || full_rank(t, std::max(limit, 1e3 * epsilon_of(a)));
      if (full) r.solution = solved_by_qr(q, t, b, wide, loc);
    }
    const int64_t most = std::min(a.size(-2), a.size(-1));
    if (r.solution.defined()) {
      if (driver != "gels") r.rank = tandem::full(stack_of(a.shape(), 2), most, DType::i64, loc);
    } else {
      r.solution = product(pinv(a, {}, rcond, loc), b, loc);
      r.rank = matrix_rank(a.detach(), {}, rcond, loc);
      full = a.is_symbolic() || all(eq(r.rank, most)).item<bool>();
    }
    if (a.size(-2) > a.size(-1) && full && driver != "gelsy")
      r.residuals = sum(square(sub(product(a, r.solution, loc), b, loc), loc), {-2}, false, loc);
    else
      r.residuals = zeros(Shape(0), a.dtype(), loc);
    if (svd_wanted) r.singular_values = svdvals(a.detach(), loc);
    if (vector) r.solution = squeeze(r.solution, -1, loc);
    return r;
  });
}

Tensor matrix_rank(const Tensor& A, std::optional<double> atol, std::optional<double> rtol,
                   SourceLocation loc) {
  return named("matrix_rank", loc, [&] {
    check_rank(A, "A");
    const Tensor s = svdvals(A.detach(), loc);
    const DeviceGuard there(A.device());
    if (s.shape(-1) == Dim(0)) return zeros(stack_of(A.shape(), 2), DType::i64, loc);
    const double absolute = atol.value_or(0);
    const double relative = rtol ? *rtol : absolute > 0 ? 0 : epsilon_of(A) * largest_size(A);
    const Tensor least = clamp_min(mul(amax(s, {-1}, true, loc), relative, loc), absolute, loc);
    return count_nonzero(gt(s, least, loc), {-1}, loc);
  });
}

Tensor matrix_power(const Tensor& A, int64_t n, SourceLocation loc) {
  return named("matrix_power", loc, [&]() -> Tensor {
    const DeviceGuard there(A.device());
    check_rank(A, "A");
    TD_CHECK(dims_equal(A.shape(-2), A.shape(-1)), Shape, "expected square matrices, got shape {}",
             A.shape().to_string());
    if (n == 0) return expand(eye(A.size(-1), -1, A.dtype(), loc), A.shape(), loc);
    Tensor base = n < 0 ? inv(A, loc) : A, result;
    for (uint64_t k = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n);;) {
      if (k & 1) result = result.defined() ? product(result, base, loc) : base;
      if (!(k >>= 1)) return result;
      base = product(base, base, loc);
    }
  });
}

Tensor matrix_exp(const Tensor& A, SourceLocation loc) {
  return call(op::matrix_exp, nullptr, loc, A);
}

namespace {

Tensor singular_norm(const Tensor& A, bool largest, bool nuclear, SourceLocation loc) {
  const Tensor s = svdvals(A, loc);
  if (nuclear) return sum(s, {-1}, false, loc);
  return largest ? amax(s, {-1}, false, loc) : amin(s, {-1}, false, loc);
}

}  // namespace

Tensor matrix_norm(const Tensor& A, Order ord, IntList dim, bool keepdim, SourceLocation loc) {
  return named("matrix_norm", loc, [&] {
    TD_CHECK(A.dim() >= 2 && dim.rank() == 2, Shape,
             "expected at least two dimensions and two dims, got shape {} and dims {}",
             A.shape().to_string(), dim.to_string());
    const int row = normalize_dim(dim[0].value(), A.dim()),
              column = normalize_dim(dim[1].value(), A.dim());
    TD_CHECK(row != column, Value, "dims {} name one dimension twice", dim.to_string());
    const auto back = [&](Tensor y) {
      if (!keepdim) return y;
      y = unsqueeze(y, std::min(row, column), loc);
      return unsqueeze(y, std::max(row, column), loc);
    };
    if (const auto* word = std::get_if<std::string_view>(&ord)) {
      if (*word == "fro") return tandem::norm(A, 2, {row, column}, keepdim, loc);
      TD_CHECK(*word == "nuc", Value, "ord '{}' must be fro or nuc", *word);
      return back(singular_norm(movedim(A, {row, column}, {-2, -1}, loc), true, true, loc));
    }
    const double p = std::get<double>(ord);
    if (std::abs(p) == 2)
      return back(singular_norm(movedim(A, {row, column}, {-2, -1}, loc), p > 0, false, loc));
    TD_CHECK(std::abs(p) == 1 || std::isinf(p), Value, "ord {} must be 1, -1, 2, -2, inf or -inf",
             p);
    // Sums over one dim, then the extreme of the other.
    const int first = std::isinf(p) ? column : row, second = std::isinf(p) ? row : column;
    const Tensor sums = sum(abs(A, loc), {first}, true, loc);
    Tensor y = p > 0 ? amax(sums, {second}, true, loc) : amin(sums, {second}, true, loc);
    return keepdim ? y : squeeze(y, IntList(row, column), loc);
  });
}

Tensor vector_norm(const Tensor& x, double ord, IntList dim, bool keepdim, SourceLocation loc) {
  return named("vector_norm", loc,
               [&] { return tandem::norm(x, ord, std::move(dim), keepdim, loc); });
}

Tensor norm(const Tensor& A, std::optional<Order> ord, IntList dim, bool keepdim,
            SourceLocation loc) {
  return named("norm", loc, [&] {
    if (!ord) return tandem::norm(A, 2, std::move(dim), keepdim, loc);
    const bool matrix = dim.rank() == 2 || (dim.empty() && A.dim() == 2);
    TD_CHECK(matrix || dim.rank() == 1 || A.dim() == 1, Shape,
             "with ord expects one or two dimensions, x is {}\nPass dim.", A.shape().to_string());
    if (matrix) return matrix_norm(A, *ord, dim.empty() ? IntList(-2, -1) : dim, keepdim, loc);
    const double* p = std::get_if<double>(&*ord);
    TD_CHECK(p, Value, "ord '{}' is for matrices", std::get<std::string_view>(*ord));
    return tandem::norm(A, *p, std::move(dim), keepdim, loc);
  });
}

Tensor cond(const Tensor& A, std::optional<Order> p, SourceLocation loc) {
  return named("cond", loc, [&] {
    check_rank(A, "A");
    const double* number = p ? std::get_if<double>(&*p) : nullptr;
    if (!p || (number && std::abs(*number) == 2)) {
      const Tensor s = svdvals(A, loc);
      const Tensor top = select(s, -1, 0, loc), least = select(s, -1, -1, loc);
      return number && *number < 0 ? div(least, top, loc) : div(top, least, loc);
    }
    return mul(matrix_norm(A, *p, {-2, -1}, false, loc),
               matrix_norm(inv(A, loc), *p, {-2, -1}, false, loc), loc);
  });
}

namespace {

// The cheapest order of a chain, by the textbook's table of costs (Cormen et al., 15.2).
Tensor chain(const std::vector<Tensor>& x, SourceLocation loc) {
  const size_t n = x.size();
  std::vector<double> size;
  for (const Tensor& t : x) size.push_back(static_cast<double>(t.size(0)));
  size.push_back(static_cast<double>(x.back().size(1)));
  std::vector<std::vector<double>> cost(n, std::vector<double>(n));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n));
  for (size_t length = 1; length < n; ++length)
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      cost[i][j] = HUGE_VAL;
      for (size_t k = i; k < j; ++k) {
        const double q = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
        if (q < cost[i][j]) {
          cost[i][j] = q;
          cut[i][j] = k;
        }
      }
    }
  const auto solve_part = [&](auto&& self, size_t i, size_t j) -> Tensor {
    if (i == j) return x[i];
    return product(self(self, i, cut[i][j]), self(self, cut[i][j] + 1, j), loc);
  };
  return solve_part(solve_part, 0, n - 1);
}

}  // namespace

Tensor multi_dot(const std::vector<Tensor>& tensors, SourceLocation loc) {
  return named("multi_dot", loc, [&] {
    TD_CHECK(tensors.size() >= 2, Value, "expected at least two tensors, got {}", tensors.size());
    std::vector<Tensor> x = tensors;
    const bool row = x.front().dim() == 1, column = x.back().dim() == 1;
    if (row) x.front() = unsqueeze(x.front(), 0, loc);
    if (column) x.back() = unsqueeze(x.back(), 1, loc);
    for (size_t i = 0; i < x.size(); ++i) {
      TD_CHECK(x[i].dim() == 2, Shape, "tensor {} must be a matrix, got shape {}", i,
               tensors[i].shape().to_string());
      TD_CHECK(i == 0 || dims_equal(x[i - 1].shape(1), x[i].shape(0)), Shape,
               "tensors {} and {} do not fit: {} and {}", i - 1, i, x[i - 1].shape().to_string(),
               x[i].shape().to_string());
    }
    Tensor y = chain(x, loc);
    if (column) y = squeeze(y, 1, loc);
    return row ? squeeze(y, 0, loc) : y;
  });
}

Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim, SourceLocation loc) {
  return named("vecdot", loc, [&] { return sum(mul(x, y, loc), {dim}, false, loc); });
}

}  // namespace tandem::linalg
