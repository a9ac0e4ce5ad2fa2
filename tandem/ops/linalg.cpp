// SPDX-License-Identifier: Apache-2.0
// The functions of torch.linalg: arguments brought into the form of the rows, and what is made of
// several rows.
#include "tandem/ops/linalg.h"

#include <array>
#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/view.h"

namespace tandem::linalg {
namespace {

using detail::named;
using detail::placed;

Tensor mT(const Tensor& x, Where where) { return transpose(x, -2, -1, where); }
Tensor product(const Tensor& a, const Tensor& b, Where where) {
  return matmul(a, b, MatmulAttrs{}, where);
}

template <size_t n>
std::array<Tensor, n> call_many(const OpDef& row, const void* attrs, const Tensor& x, Where where) {
  Operand in[] = {Operand(x, where)};
  Tensor out[kMaxOpOuts];
  apply(row, attrs, in, out, where);
  std::array<Tensor, n> r;
  for (size_t i = 0; i < n; ++i) r[i] = std::move(out[i]);
  return r;
}

void check_rank(const Tensor& x, const char* name) {
  TD_CHECK(x.dim() >= 2, Shape, "{} must be a matrix or a stack of them, got shape {}", name,
           x.shape().to_string());
}

Shape stack_of(const Shape& s, int tail) {
  Shape out;
  for (int i = 0; i + tail < s.rank(); ++i) out.push_back(s[i]);
  return out;
}

// A and B with equal leading dims.
void same_stack(Tensor& a, Tensor& b, Where where) {
  const Shape stack = broadcast_shapes(stack_of(a.shape(), 2), stack_of(b.shape(), 2));
  const auto wide = [&](const Tensor& x) {
    Shape s = stack;
    s.push_back(x.shape(-2));
    s.push_back(x.shape(-1));
    return expand(x, s, where);
  };
  a = wide(a);
  b = wide(b);
}

// B is a vector for each matrix A: as in torch.linalg.solve.
bool is_vector(const Tensor& a, const Tensor& b) {
  if (b.dim() == 1) return true;
  if (b.dim() != a.dim() - 1) return false;
  for (int i = 0; i < b.dim(); ++i)
    if (!dims_equal(b.shape(i), a.shape(i))) return false;
  return true;
}

// Solves with B as matrices, on the wanted side.
template <class F>
Tensor solve_with(const char* name, const Tensor& A, const Tensor& B, bool left, Where where,
                  F&& solver) {
  return named(name, where, [&] {
    check_rank(A, "A");
    TD_CHECK(B.dim() >= 1, Shape, "B must have a dimension");
    const bool vector = is_vector(A, B);
    Tensor a = left ? A : mT(A, where);
    Tensor b = vector ? unsqueeze(B, -1, where) : left ? B : mT(B, where);
    same_stack(a, b, where);
    Tensor x = solver(a, b);
    if (vector) return squeeze(x, -1, where);
    return left ? x : mT(x, where);
  });
}

double largest_size(const Tensor& A) {
  return static_cast<double>(std::max(A.size(-2), A.size(-1)));
}
double epsilon_of(const Tensor& A) { return A.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23; }

}  // namespace

Tensor cholesky(const Tensor& A, bool upper, Where where) {
  CholeskyAttrs a{upper};
  return call(op::cholesky, &a, where, A);
}

Tensor cholesky_solve(const Tensor& B, const Tensor& L, bool upper, Where where) {
  return named("cholesky_solve", where, [&] {
    check_rank(L, "L");
    check_rank(B, "B");
    const Tensor l = upper ? mT(L, where) : L;
    const Tensor y = solve_triangular(l, B, false, true, false, where);
    return solve_triangular(mT(l, where), y, true, true, false, where);
  });
}

Tensor cholesky_inverse(const Tensor& L, bool upper, Where where) {
  return named("cholesky_inverse", where, [&] {
    check_rank(L, "L");
    return cholesky_solve(eye(L.size(-1), -1, L.dtype(), where), L, upper, where);
  });
}

Tensor solve(const Tensor& A, const Tensor& B, bool left, Where where) {
  return solve_with("solve", A, B, left, where, [&](const Tensor& a, const Tensor& b) {
    return call(op::solve, nullptr, where, a, b);
  });
}

Tensor solve_triangular(const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular,
                        Where where) {
  return solve_with("solve_triangular", A, B, left, where, [&](const Tensor& a, const Tensor& b) {
    // On the right side the transpose is solved, whose triangle is the other one.
    TriangularAttrs attrs{left ? upper : !upper, unitriangular};
    return call(op::solve_triangular, &attrs, where, a, b);
  });
}

std::pair<Tensor, Tensor> lu_factor(const Tensor& A, Where where) {
  auto r = call_many<2>(op::lu_factor, nullptr, A, where);
  return {r[0], r[1]};
}

std::tuple<Tensor, Tensor, Tensor> lu(const Tensor& A, Where where) {
  return named("lu", where, [&]() -> std::tuple<Tensor, Tensor, Tensor> {
    const auto [f, pivots] = lu_factor(A, where);
    const int64_t m = A.size(-2), k = std::min(m, A.size(-1));
    const ShapeAttrs length{{m}};
    const Tensor rows = call(op::lu_permutation, &length, where, pivots);
    // Column i of P has its one in the row of A that row i of the factors was.
    const Tensor columns = mT(one_hot(rows, m, where).to(A.dtype(), where), where);
    const Tensor l =
        add(tril(narrow(f, -1, 0, k, where), -1, where), eye(m, k, A.dtype(), where), where);
    return {columns, l, triu(narrow(f, -2, 0, k, where), 0, where)};
  });
}

Tensor lu_solve(const Tensor& LU, const Tensor& pivots, const Tensor& B, Where where) {
  return solve_with("lu_solve", LU, B, true, where, [&](const Tensor& f, const Tensor& b) {
    const ShapeAttrs same;
    Tensor rows = call(op::lu_permutation, &same, where, pivots);
    rows = expand(unsqueeze(rows, -1, where), b.shape(), where);
    const Tensor moved = gather(b, b.dim() - 2, rows, where);
    return solve_triangular(f, solve_triangular(f, moved, false, true, true, where), true, true,
                            false, where);
  });
}

Tensor inv(const Tensor& A, Where where) { return call(op::inv, nullptr, where, A); }

Tensor pinv(const Tensor& A, std::optional<double> atol, std::optional<double> rtol, Where where) {
  PinvAttrs a{atol.value_or(0), rtol.value_or(-1)};
  return call(op::pinv, &a, where, A);
}

Tensor det(const Tensor& A, Where where) { return call(op::det, nullptr, where, A); }

std::pair<Tensor, Tensor> slogdet(const Tensor& A, Where where) {
  auto r = call_many<2>(op::slogdet, nullptr, A, where);
  return {r[0], r[1]};
}

Tensor logdet(const Tensor& A, Where where) {
  const auto [sign, log_abs] = slogdet(A, where);
  return tandem::where(lt(sign, 0, where), std::nan(""), log_abs, where);
}

std::pair<Tensor, Tensor> qr(const Tensor& A, std::string_view mode, Where where) {
  return named("qr", where, [&]() -> std::pair<Tensor, Tensor> {
    TD_CHECK(mode == "reduced" || mode == "complete" || mode == "r", Value,
             "mode '{}' is none of reduced, complete, r", mode);
    QrAttrs a{mode == "complete"};
    auto r = call_many<2>(op::qr, &a, A, where);
    if (mode == "r") r[0] = zeros(Shape(0), A.dtype(), where);
    return {r[0], r[1]};
  });
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& A, bool full_matrices, Where where) {
  SvdAttrs a{full_matrices};
  auto r = call_many<3>(op::svd, &a, A, where);
  return {r[0], r[1], r[2]};
}

Tensor svdvals(const Tensor& A, Where where) {
  return named("svdvals", where, [&] { return std::get<1>(svd(A, false, where)); });
}

std::pair<Tensor, Tensor> eigh(const Tensor& A, std::string_view UPLO, Where where) {
  return named("eigh", where, [&]() -> std::pair<Tensor, Tensor> {
    TD_CHECK(UPLO == "L" || UPLO == "U" || UPLO == "l" || UPLO == "u", Value,
             "UPLO '{}' is neither L nor U", UPLO);
    CholeskyAttrs a{UPLO == "U" || UPLO == "u"};
    auto r = call_many<2>(op::eigh, &a, A, where);
    return {r[0], r[1]};
  });
}

Tensor eigvalsh(const Tensor& A, std::string_view UPLO, Where where) {
  return named("eigvalsh", where, [&] { return eigh(A, UPLO, where).first; });
}

std::pair<Tensor, Tensor> eig(const Tensor& A, Where where) {
  return placed("eig", where, [&]() -> std::pair<Tensor, Tensor> {
    TD_CHECK(false, Unsupported,
             "the eigenvalues of a general matrix {} are complex, and there is no complex dtype\n"
             "Use eigh for a symmetric matrix, or svd.",
             A.shape().to_string());
    return {};
  });
}

Tensor eigvals(const Tensor& A, Where where) {
  return named("eigvals", where, [&] { return eig(A, where).first; });
}

namespace {

// Are the diagonals of R so far from 0 that no column of A nearly depends on the others?
bool full_rank(const Tensor& r, double limit) {
  if (r.numel() == 0) return true;
  NoGradGuard no_grad;
  const Tensor d = abs(diagonal(r.detach(), 0, -2, -1));
  return all(gt(amin(d, {-1}), amax(d, {-1}) * limit)).item<bool>();
}

// By A = Q R: R^-1 Q^T B, or of least norm, Q R^-T B with A^T = Q R, for more columns than rows.
Tensor solved_by_qr(const Tensor& q, const Tensor& r, const Tensor& b, bool wide, Where where) {
  if (wide) return product(q, solve_triangular(mT(r, where), b, false, true, false, where), where);
  return solve_triangular(r, product(mT(q, where), b, where), true, true, false, where);
}

}  // namespace

LstsqResult lstsq(const Tensor& A, const Tensor& B, std::optional<double> rcond,
                  std::string_view driver, Where where) {
  return named("lstsq", where, [&] {
    TD_CHECK(driver == "gelsy" || driver == "gels" || driver == "gelsd" || driver == "gelss", Value,
             "driver is \"{}\"\nIt is \"gelsy\", \"gels\", \"gelsd\" or \"gelss\".", driver);
    check_rank(A, "A");
    TD_CHECK(B.dim() >= 1, Shape, "B must have a dimension");
    const bool vector = is_vector(A, B) || (B.dim() == A.dim() - 1);
    Tensor a = A, b = vector ? unsqueeze(B, -1, where) : B;
    same_stack(a, b, where);
    TD_CHECK(dims_equal(a.shape(-2), b.shape(-2)), Shape,
             "A is {}, B is {}\nB must have as many rows as A.", A.shape().to_string(),
             B.shape().to_string());
    LstsqResult r;
    r.rank = zeros(Shape(0), DType::i64, where);
    r.singular_values = zeros(Shape(0), a.dtype(), where);
    const bool wide = a.size(-2) < a.size(-1), svd_wanted = driver == "gelsd" || driver == "gelss";
    bool full = true;
    // Whether the rank is full cannot be read in a trace: there only "gels" is solved by QR.
    if (driver == "gels" || (!svd_wanted && !a.is_symbolic())) {
      const auto [q, t] = qr(wide ? mT(a, where) : a, "reduced", where);
      const double limit = rcond.value_or(epsilon_of(a) * largest_size(a));
      full = driver == "gels" || full_rank(t, std::max(limit, 1e3 * epsilon_of(a)));
      if (full) r.solution = solved_by_qr(q, t, b, wide, where);
    }
    const int64_t most = std::min(a.size(-2), a.size(-1));
    if (r.solution.defined()) {
      if (driver != "gels") r.rank = tandem::full(stack_of(a.shape(), 2), most, DType::i64, where);
    } else {
      r.solution = product(pinv(a, {}, rcond, where), b, where);
      r.rank = matrix_rank(a.detach(), {}, rcond, where);
      full = a.is_symbolic() || all(eq(r.rank, most)).item<bool>();
    }
    if (a.size(-2) > a.size(-1) && full && driver != "gelsy")
      r.residuals =
          sum(square(sub(product(a, r.solution, where), b, where), where), {-2}, false, where);
    else
      r.residuals = zeros(Shape(0), a.dtype(), where);
    if (svd_wanted) r.singular_values = svdvals(a.detach(), where);
    if (vector) r.solution = squeeze(r.solution, -1, where);
    return r;
  });
}

Tensor matrix_rank(const Tensor& A, std::optional<double> atol, std::optional<double> rtol,
                   Where where) {
  return named("matrix_rank", where, [&] {
    check_rank(A, "A");
    const Tensor s = svdvals(A.detach(), where);
    if (s.shape(-1) == Dim(0)) return zeros(stack_of(A.shape(), 2), DType::i64, where);
    const double absolute = atol.value_or(0);
    const double relative = rtol ? *rtol : absolute > 0 ? 0 : epsilon_of(A) * largest_size(A);
    const Tensor least =
        clamp_min(mul(amax(s, {-1}, true, where), relative, where), absolute, where);
    return count_nonzero(gt(s, least, where), {-1}, where);
  });
}

Tensor matrix_power(const Tensor& A, int64_t n, Where where) {
  return named("matrix_power", where, [&] {
    check_rank(A, "A");
    TD_CHECK(dims_equal(A.shape(-2), A.shape(-1)), Shape, "wants square matrices, got shape {}",
             A.shape().to_string());
    if (n == 0) return expand(eye(A.size(-1), -1, A.dtype(), where), A.shape(), where);
    Tensor base = n < 0 ? inv(A, where) : A, result;
    for (uint64_t k = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n);;) {
      if (k & 1) result = result.defined() ? product(result, base, where) : base;
      if (!(k >>= 1)) return result;
      base = product(base, base, where);
    }
  });
}

Tensor matrix_exp(const Tensor& A, Where where) { return call(op::matrix_exp, nullptr, where, A); }

namespace {

Tensor singular_norm(const Tensor& A, bool largest, bool nuclear, Where where) {
  const Tensor s = svdvals(A, where);
  if (nuclear) return sum(s, {-1}, false, where);
  return largest ? amax(s, {-1}, false, where) : amin(s, {-1}, false, where);
}

}  // namespace

Tensor matrix_norm(const Tensor& A, Order ord, IntList dim, bool keepdim, Where where) {
  return named("matrix_norm", where, [&] {
    TD_CHECK(A.dim() >= 2 && dim.rank() == 2, Shape,
             "wants at least two dimensions and two dims, got shape {} and dims {}",
             A.shape().to_string(), dim.to_string());
    const int row = normalize_dim(dim[0].value(), A.dim()),
              column = normalize_dim(dim[1].value(), A.dim());
    TD_CHECK(row != column, Value, "dims {} name one dimension twice", dim.to_string());
    const auto back = [&](Tensor y) {
      if (!keepdim) return y;
      y = unsqueeze(y, std::min(row, column), where);
      return unsqueeze(y, std::max(row, column), where);
    };
    if (const auto* word = std::get_if<std::string_view>(&ord)) {
      if (*word == "fro") return tandem::norm(A, 2, {row, column}, keepdim, where);
      TD_CHECK(*word == "nuc", Value, "ord '{}' is neither fro nor nuc", *word);
      return back(singular_norm(movedim(A, {row, column}, {-2, -1}, where), true, true, where));
    }
    const double p = std::get<double>(ord);
    if (std::abs(p) == 2)
      return back(singular_norm(movedim(A, {row, column}, {-2, -1}, where), p > 0, false, where));
    TD_CHECK(std::abs(p) == 1 || std::isinf(p), Value, "ord {} is none of 1, -1, 2, -2, inf, -inf",
             p);
    // Sums over one dim, then the extreme of the other.
    const int first = std::isinf(p) ? column : row, second = std::isinf(p) ? row : column;
    const Tensor sums = sum(abs(A, where), {first}, true, where);
    Tensor y = p > 0 ? amax(sums, {second}, true, where) : amin(sums, {second}, true, where);
    return keepdim ? y : squeeze(y, IntList(row, column), where);
  });
}

Tensor vector_norm(const Tensor& x, double ord, IntList dim, bool keepdim, Where where) {
  return named("vector_norm", where,
               [&] { return tandem::norm(x, ord, std::move(dim), keepdim, where); });
}

Tensor norm(const Tensor& A, std::optional<Order> ord, IntList dim, bool keepdim, Where where) {
  return named("norm", where, [&] {
    if (!ord) return tandem::norm(A, 2, std::move(dim), keepdim, where);
    const bool matrix = dim.rank() == 2 || (dim.empty() && A.dim() == 2);
    TD_CHECK(matrix || dim.rank() == 1 || A.dim() == 1, Shape,
             "with ord wants one or two dimensions, x is {}\nPass dim.", A.shape().to_string());
    if (matrix) return matrix_norm(A, *ord, dim.empty() ? IntList(-2, -1) : dim, keepdim, where);
    const double* p = std::get_if<double>(&*ord);
    TD_CHECK(p, Value, "ord '{}' is for matrices", std::get<std::string_view>(*ord));
    return tandem::norm(A, *p, std::move(dim), keepdim, where);
  });
}

Tensor cond(const Tensor& A, std::optional<Order> p, Where where) {
  return named("cond", where, [&] {
    check_rank(A, "A");
    const double* number = p ? std::get_if<double>(&*p) : nullptr;
    if (!p || (number && std::abs(*number) == 2)) {
      const Tensor s = svdvals(A, where);
      const Tensor top = select(s, -1, 0, where), least = select(s, -1, -1, where);
      return number && *number < 0 ? div(least, top, where) : div(top, least, where);
    }
    return mul(matrix_norm(A, *p, {-2, -1}, false, where),
               matrix_norm(inv(A, where), *p, {-2, -1}, false, where), where);
  });
}

namespace {

// The cheapest order of a chain, by the text book's table of costs (Cormen et al., 15.2).
Tensor chain(const std::vector<Tensor>& x, Where where) {
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
    return product(self(self, i, cut[i][j]), self(self, cut[i][j] + 1, j), where);
  };
  return solve_part(solve_part, 0, n - 1);
}

}  // namespace

Tensor multi_dot(const std::vector<Tensor>& tensors, Where where) {
  return named("multi_dot", where, [&] {
    TD_CHECK(tensors.size() >= 2, Value, "wants at least two tensors, got {}", tensors.size());
    std::vector<Tensor> x = tensors;
    const bool row = x.front().dim() == 1, column = x.back().dim() == 1;
    if (row) x.front() = unsqueeze(x.front(), 0, where);
    if (column) x.back() = unsqueeze(x.back(), 1, where);
    for (size_t i = 0; i < x.size(); ++i) {
      TD_CHECK(x[i].dim() == 2, Shape, "tensor {} must be a matrix, got shape {}", i,
               tensors[i].shape().to_string());
      TD_CHECK(i == 0 || dims_equal(x[i - 1].shape(1), x[i].shape(0)), Shape,
               "tensors {} and {} do not fit: {} and {}", i - 1, i, x[i - 1].shape().to_string(),
               x[i].shape().to_string());
    }
    Tensor y = chain(x, where);
    if (column) y = squeeze(y, 1, where);
    return row ? squeeze(y, 0, where) : y;
  });
}

Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim, Where where) {
  return named("vecdot", where, [&] { return sum(mul(x, y, where), {dim}, false, where); });
}

}  // namespace tandem::linalg
