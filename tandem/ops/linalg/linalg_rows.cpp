// SPDX-License-Identifier: Apache-2.0
// The rows of linear algebra: shape rules, derivatives (M. Giles, "Collected matrix derivative
// results", 2008; I. Murray, "Differentiation of the Cholesky decomposition", 2016; PyTorch's notes
// for qr, svd and eigh), batch rules. The loops are in linalg_eigen.cpp.
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/linalg/linalg_internal.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using linalg::CholeskyAttrs;
using linalg::QrAttrs;
using linalg::SvdAttrs;
using linalg::TriangularAttrs;

// ---- shape rules

void check_matrix(const InferCall& c, int i) {
  const Spec& x = c.in[i];
  TD_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, DType,
           "{} is {}, expected float32 or float64\nConvert it with .to(float32).", c.op.in_names[i],
           to_string(x.dtype));
  TD_CHECK(x.dtype == c.in[0].dtype, DType, "{} is {}, {} is {}\nConvert one of them.",
           c.op.in_names[0], to_string(c.in[0].dtype), c.op.in_names[i], to_string(x.dtype));
  TD_CHECK(x.rank() >= 2, Shape, "{} must be a matrix or a stack of them, got shape {}",
           c.op.in_names[i], x.shape.to_string());
}
void check_square(const InferCall& c) {
  check_matrix(c, 0);
  const Spec& x = c.in[0];
  TD_CHECK(dims_equal(x[x.rank() - 2], x[x.rank() - 1]), Shape,
           "expected square matrices, got shape {}", x.shape.to_string());
}
Shape stack_of(const Shape& s, int dropped) {
  Shape out;
  for (int i = 0; i + dropped < s.rank(); ++i) out.push_back(s[i]);
  return out;
}
Shape with_matrix(Shape s, Dim m, Dim n) {
  s.push_back(m);
  s.push_back(n);
  return s;
}
Dim rows_of(const Spec& x) { return x.shape[x.rank() - 2]; }
Dim cols_of(const Spec& x) { return x.shape[x.rank() - 1]; }
Dim smaller(Dim a, Dim b) { return a == b ? a : min(a, b); }

// [..., n, n] -> the same.
void square_infer(InferCall& c) {
  check_square(c);
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
}
// [..., n, n], [..., n, k] -> [..., n, k] with equal leading dims.
void solve_infer(InferCall& c) {
  check_square(c);
  check_matrix(c, 1);
  const Spec &a = c.in[0], &b = c.in[1];
  bool fits = a.rank() == b.rank() && dims_equal(cols_of(a), rows_of(b));
  for (int i = 0; fits && i + 2 < a.rank(); ++i) fits = dims_equal(a.shape[i], b.shape[i]);
  TD_CHECK(fits, Shape, "A is {}, B is {}\nB must have as many rows as A.", a.shape.to_string(),
           b.shape.to_string());
  c.out[0] = Spec(b.dtype, b.shape, b.device);
}
void lu_factor_infer(InferCall& c) {
  check_matrix(c, 0);
  const Spec& x = c.in[0];
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  Shape pivots = stack_of(x.shape, 2);
  pivots.push_back(smaller(rows_of(x), cols_of(x)));
  c.out[1] = Spec(DType::i32, pivots, c.in[0].device);
}
void lu_permutation_infer(InferCall& c) {
  TD_CHECK(c.in[0].dtype == DType::i32, DType, "pivots are {}, expected int32",
           to_string(c.in[0].dtype));
  TD_CHECK(c.in[0].rank() >= 1, Shape, "pivots must have a dimension");
  Shape rows = c.in[0].shape;
  const Shape& wanted = c.get_attrs<ShapeAttrs>().shape;
  if (wanted.rank()) rows[rows.rank() - 1] = wanted[0];
  c.out[0] = Spec(DType::i64, rows, c.in[0].device);
}
// [..., n, n] -> [...] for every output.
void det_infer(InferCall& c) {
  check_square(c);
  for (int k = 0; k < c.op.n_out; ++k)
    c.out[k] = Spec(c.in[0].dtype, stack_of(c.in[0].shape, 2), c.in[0].device);
}
void qr_infer(InferCall& c) {
  check_matrix(c, 0);
  const Spec& x = c.in[0];
  const Dim m = rows_of(x), n = cols_of(x), k = c.get_attrs<QrAttrs>().complete ? m : smaller(m, n);
  const Shape stack = stack_of(x.shape, 2);
  c.out[0] = Spec(x.dtype, with_matrix(stack, m, k), x.device);
  c.out[1] = Spec(x.dtype, with_matrix(stack, k, n), x.device);
}
void eigh_infer(InferCall& c) {
  check_square(c);
  const Spec& x = c.in[0];
  c.out[0] = Spec(x.dtype, stack_of(x.shape, 1), x.device);
  c.out[1] = Spec(x.dtype, x.shape, x.device);
}
void svd_infer(InferCall& c) {
  check_matrix(c, 0);
  const Spec& x = c.in[0];
  const bool full = c.get_attrs<SvdAttrs>().full_matrices;
  const Dim m = rows_of(x), n = cols_of(x), k = smaller(m, n);
  const Shape stack = stack_of(x.shape, 2);
  Shape s = stack;
  s.push_back(k);
  c.out[0] = Spec(x.dtype, with_matrix(stack, m, full ? m : k), x.device);
  c.out[1] = Spec(x.dtype, s, x.device);
  c.out[2] = Spec(x.dtype, with_matrix(stack, full ? n : k, n), x.device);
}
void pinv_infer(InferCall& c) {
  check_matrix(c, 0);
  const Spec& x = c.in[0];
  c.out[0] = Spec(x.dtype, with_matrix(stack_of(x.shape, 2), cols_of(x), rows_of(x)), x.device);
}

// Leading dims are a batch already.
void stack_batch(BatchCall& c) {
  const SourceLocation loc = c.node.loc;
  const void* attrs = c.node.attrs.get();
  const auto run = [&](std::span<Operand> in) { apply(*c.node.op, attrs, in, c.out, loc); };
  if (c.n_in() == 1) {
    Operand in[] = {Operand(c.in[0], loc)};
    return run(in);
  }
  Operand in[] = {Operand(detail::with_batch(c, 0), loc), Operand(detail::with_batch(c, 1), loc)};
  run(in);
}

// ---- building blocks of the derivatives

// Matmuls and transposes with the user's location.
struct Algebra {
  SourceLocation loc;
  Tensor mm(const Tensor& a, const Tensor& b) const { return matmul(a, b, MatmulAttrs{}, loc); }
  /// a^T b and a b^T.
  Tensor tm(const Tensor& a, const Tensor& b) const {
    return matmul(a, b, MatmulAttrs{true, false}, loc);
  }
  Tensor mt(const Tensor& a, const Tensor& b) const {
    return matmul(a, b, MatmulAttrs{false, true}, loc);
  }
  Tensor t(const Tensor& a) const { return transpose(a, -2, -1, loc); }
  Tensor solve(const Tensor& a, const Tensor& b, bool upper, bool unit = false) const {
    TriangularAttrs attrs{upper, unit};
    return call(op::solve_triangular, &attrs, loc, a, b);
  }
  /// x a^-1 for a triangular a.
  Tensor solve_right(const Tensor& a, const Tensor& x, bool upper) const {
    return t(solve(t(a), t(x), !upper));
  }
  Tensor lower(const Tensor& a, int64_t k = 0) const { return tril(a, k, loc); }
  Tensor upper(const Tensor& a, int64_t k = 0) const { return triu(a, k, loc); }
  Tensor eye(const Tensor& like) const { return tandem::eye(like.size(-1), -1, like.dtype(), loc); }
  /// Vectors [..., n] as diagonal matrices.
  Tensor diagonal(const Tensor& v) const {
    Shape s = v.shape();
    s.push_back(v.shape().back());
    DiagonalAttrs attrs{0, s.rank() - 2, s.rank() - 1, s};
    return call(op::diagonal_backward, &attrs, loc, v);
  }
  Tensor column(const Tensor& v) const { return unsqueeze(v, -1, loc); }
  Tensor row(const Tensor& v) const { return unsqueeze(v, -2, loc); }
  Tensor plus(const Tensor& a, const Tensor& b) const { return a.defined() ? add(a, b, loc) : b; }
  Tensor times(const Tensor& a, const Operand& b) const {
    return b.is_scalar() ? mul(a, b.scalar(), loc) : mul(a, b.tensor(), loc);
  }
  Tensor minus(const Tensor& a, const Tensor& b) const { return sub(a, b, loc); }
  Tensor over(const Tensor& a, const Tensor& b) const { return div(a, b, loc); }
};

// ---- derivatives

void cholesky_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const bool upper = c.get_attrs<CholeskyAttrs>().upper;
  const Tensor l = upper ? w.t(c.out(0)) : c.out(0), g = upper ? w.t(c.grad()) : c.grad();
  const Tensor p = w.tm(l, g);
  const Tensor half = w.times(add(w.lower(p), w.lower(p, -1), c.loc()), 0.5);
  const Tensor s = w.solve_right(l, w.solve(w.t(l), half, true), false);
  c.results[0] = w.times(add(s, w.t(s), c.loc()), 0.5);
}

// A X = B: dB = A^-T g, dA = -dB X^T.
void solve_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const Tensor gb = call(op::solve, nullptr, c.loc(), w.t(c.in(0)), c.grad());
  if (c.needs(0)) c.results[0] = neg(w.mt(gb, c.out(0)), c.loc());
  if (c.needs(1)) c.results[1] = gb;
}
void solve_triangular_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const auto& a = c.get_attrs<TriangularAttrs>();
  const Tensor gb = w.solve(w.t(c.in(0)), c.grad(), !a.upper, a.unitriangular);
  if (c.needs(0)) {
    const Tensor full = neg(w.mt(gb, c.out(0)), c.loc());
    const int64_t k = a.unitriangular ? 1 : 0;
    c.results[0] = a.upper ? w.upper(full, k) : w.lower(full, -k);
  }
  if (c.needs(1)) c.results[1] = gb;
}

// Rows of x in the order of `rows` [..., n].
Tensor take_rows(const Tensor& x, const Tensor& rows, SourceLocation loc) {
  GatherAttrs a{x.dim() - 2};
  return call(op::gather, &a, loc, x, expand(unsqueeze(rows, -1, loc), x.shape(), loc));
}
void lu_factor_vjp(VjpCall& c) {
  if (!c.grad(0).defined()) return;
  const Algebra w{c.loc()};
  const SourceLocation loc = c.loc();
  const int64_t m = c.out(0).size(-2), n = c.out(0).size(-1), k = std::min(m, n);
  const auto block = [&](const Tensor& x, bool below, bool right) {
    const Tensor rows = narrow(x, -2, below ? k : 0, below ? m - k : k, loc);
    return narrow(rows, -1, right ? k : 0, right ? n - k : k, loc);
  };
  const Tensor f = c.out(0), g = c.grad(0), lu = block(f, false, false),
               gk = block(g, false, false);
  const Tensor l = add(w.lower(lu, -1), w.eye(lu), loc), u = w.upper(lu);
  Tensor low = w.tm(l, w.lower(gk, -1)), up = w.mt(w.upper(gk), u);
  // The rows below the square part contribute to U, the columns right of it to L.
  if (m > k) up = w.minus(up, w.tm(block(f, true, false), block(g, true, false)));
  if (n > k) low = w.minus(low, w.mt(block(g, false, true), block(f, false, true)));
  const Tensor inner = add(w.lower(low, -1), w.upper(up), loc);
  const auto times_u = [&](const Tensor& x) { return w.t(w.solve(lu, w.t(x), true)); };
  const auto times_l = [&](const Tensor& x) { return w.solve(w.t(lu), x, true, true); };
  Tensor both = times_u(times_l(inner));
  if (m > k) both = cat({both, times_u(block(g, true, false))}, -2, loc);
  if (n > k) both = cat({both, times_l(block(g, false, true))}, -1, loc);
  const ShapeAttrs rows{{m}};
  const Tensor order = call(op::lu_permutation, &rows, loc, c.out(1));
  c.results[0] = take_rows(both, argsort(order, -1, false, c.loc()), c.loc());
}

void inv_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const Tensor y = c.out(0);
  c.results[0] = neg(w.tm(y, w.mt(c.grad(), y)), c.loc());
}

Tensor per_matrix(const Algebra& w, const Tensor& g) { return w.column(w.column(g)); }

void det_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  c.results[0] = w.times(call(op::cofactor, nullptr, c.loc(), c.in(0)), per_matrix(w, c.grad()));
}
void slogdet_vjp(VjpCall& c) {
  if (!c.grad(1).defined()) return;
  const Algebra w{c.loc()};
  const Tensor inverse = call(op::inv, nullptr, c.loc(), c.in(0));
  c.results[0] = w.times(w.t(inverse), per_matrix(w, c.grad(1)));
}
// Derivative of det(A) A^-T; where A is singular the inverse reports it.
void cofactor_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const Tensor yt = w.t(call(op::inv, nullptr, c.loc(), c.in(0)));
  const Tensor det = call(op::det, nullptr, c.loc(), c.in(0));
  const Tensor dot = sum(w.times(c.grad(), yt), {-2, -1}, true, c.loc());
  const Tensor change = w.minus(w.times(yt, dot), w.mm(yt, w.tm(c.grad(), yt)));
  c.results[0] = w.times(change, per_matrix(w, det));
}

// Tall or square: (gQ + Q sym(R gR^T - gQ^T Q)) R^-T, sym copying the lower triangle.
Tensor tall_qr_grad(const Algebra& w, const Tensor& q, const Tensor& r, const Tensor& gq,
                    const Tensor& gr) {
  Tensor m;
  if (gr.defined()) m = w.mt(r, gr);
  if (gq.defined()) {
    const Tensor other = w.tm(gq, q);
    m = m.defined() ? w.minus(m, other) : neg(other, w.loc);
  }
  const Tensor symmetric = add(w.lower(m), w.t(w.lower(m, -1)), w.loc);
  const Tensor b = w.plus(gq, w.mm(q, symmetric));
  return w.t(w.solve(r, w.t(b), true));
}
void qr_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const int rank = c.in_shape(0).rank();
  const int64_t m = c.in_shape(0)[rank - 2].value(), n = c.in_shape(0)[rank - 1].value();
  const Tensor q = c.out(0), r = c.out(1), &gq = c.grad(0), &gr = c.grad(1);
  TD_CHECK(!c.get_attrs<QrAttrs>().complete || m <= n, Unsupported,
           "the derivative of mode \"complete\" is not defined for [{}, {}], more rows than "
           "columns\nUse mode \"reduced\".",
           m, n);
  if (m >= n) {
    c.results[0] = tall_qr_grad(w, q, r, gq, gr);
    return;
  }
  // Wide: A = [X, Y], R = [U, V] with X = Q U and V = Q^T Y.
  const Tensor u = narrow(r, -1, 0, m, c.loc());
  Tensor q_total = gq, gu, gy;
  if (gr.defined()) {
    gu = narrow(gr, -1, 0, m, c.loc());
    const Tensor gv = narrow(gr, -1, m, n - m, c.loc());
    q_total = w.plus(gq, w.mt(w.mm(q, narrow(r, -1, m, n - m, c.loc())), gv));
    gy = w.mm(q, gv);
  }
  const Tensor gx = tall_qr_grad(w, q, u, q_total, gu);
  if (!gy.defined()) {
    Shape s = gx.shape();
    s[s.rank() - 1] = n - m;
    gy = zeros(s, gx.dtype(), c.loc());
  }
  c.results[0] = cat({gx, gy}, -1, c.loc());
}

// Differences v[j] - v[i] of every pair, ones on the diagonal.
Tensor gaps(const Algebra& w, const Tensor& v) {
  return add(w.minus(w.row(v), w.column(v)), w.eye(v), w.loc);
}
Tensor off_diagonal(const Algebra& w, const Tensor& a) {
  return w.times(a, sub(1, w.eye(a), w.loc));
}
void eigh_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const Tensor v = c.out(1);
  Tensor inner;
  if (c.grad(0).defined()) inner = w.diagonal(c.grad(0));
  if (c.grad(1).defined()) {
    const Tensor turned = off_diagonal(w, w.tm(v, c.grad(1)));
    inner = w.plus(inner, w.over(turned, gaps(w, c.out(0))));
  }
  if (!inner.defined()) return;
  const Tensor g = w.mm(v, w.mt(inner, v));
  c.results[0] = w.times(add(g, w.t(g), c.loc()), 0.5);
}

Tensor skew(const Algebra& w, const Tensor& a) { return w.minus(a, w.t(a)); }
void svd_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const SourceLocation loc = c.loc();
  const int rank = c.in_shape(0).rank();
  const int64_t m = c.in_shape(0)[rank - 2].value(), n = c.in_shape(0)[rank - 1].value();
  const int64_t k = std::min(m, n);
  Tensor u = c.out(0), s = c.out(1), vh = c.out(2);
  const Tensor &gu = c.grad(0), &gs = c.grad(1), &gvh = c.grad(2);
  if (c.get_attrs<SvdAttrs>().full_matrices && m != n) {
    TD_CHECK(!gu.defined() && !gvh.defined(), Unsupported,
             "U and Vh of full_matrices=true have no derivative for [{}, {}]: their last vectors "
             "are arbitrary\nPass full_matrices = false.",
             m, n);
    u = narrow(u, -1, 0, k, loc);
    vh = narrow(vh, -2, 0, k, loc);
  }
  if (!gu.defined() && !gvh.defined()) {
    if (gs.defined()) c.results[0] = w.mm(w.times(u, w.row(gs)), vh);
    return;
  }
  Tensor inner, utgu;
  if (gs.defined()) inner = w.diagonal(gs);
  const Tensor e = gaps(w, square(s, loc));
  if (gu.defined()) {
    utgu = w.tm(u, gu);
    inner = w.plus(inner, w.times(w.over(skew(w, utgu), e), w.row(s)));
  }
  if (gvh.defined()) inner = w.plus(inner, w.times(w.over(skew(w, w.mt(vh, gvh)), e), w.column(s)));
  Tensor left = w.mm(u, inner);
  if (gu.defined() && m > k) left = add(left, w.over(w.minus(gu, w.mm(u, utgu)), w.row(s)), loc);
  Tensor g = w.mm(left, vh);
  if (gvh.defined() && n > k) {
    const Tensor rest = w.minus(gvh, w.mm(w.mt(gvh, vh), vh));
    g = add(g, w.mm(u, w.over(rest, w.column(s))), loc);
  }
  c.results[0] = g;
}

// Golub and Pereyra, 1973: dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P.
void pinv_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const Tensor &a = c.in(0), &g = c.grad();
  const Tensor p = c.out(0), gp = w.tm(g, p), pg = w.mt(p, g);
  // gp = g^T P and pg = P g^T: (I - A P) g^T P P^T = gp P^T - A P gp P^T, and so on.
  const Tensor left = w.mt(gp, p);
  const Tensor right = w.tm(p, pg);
  Tensor total = neg(w.tm(p, w.mt(g, p)), c.loc());
  total = add(total, w.minus(left, w.mm(a, w.mm(p, left))), c.loc());
  c.results[0] = add(total, w.minus(right, w.mm(w.mm(right, p), a)), c.loc());
}

// The upper right block of exp([[A^T, g], [0, A^T]]) (R. Mathias, 1996).
void matrix_exp_vjp(VjpCall& c) {
  const Algebra w{c.loc()};
  const SourceLocation loc = c.loc();
  const Tensor at = w.t(c.in(0));
  const int64_t n = at.size(-1);
  const Tensor top = cat({at, c.grad()}, -1, loc);
  const Tensor bottom = cat({zeros_like(at, loc), at}, -1, loc);
  const Tensor e = call(op::matrix_exp, nullptr, loc, cat({top, bottom}, -2, loc));
  c.results[0] = narrow(narrow(e, -2, 0, n, loc), -1, n, n, loc);
}

double cubic_flops(const InferCall& c) {
  const Shape& s = c.in[0].shape;
  if (s.is_symbolic() || s.rank() < 2) return 0;
  return 2.0 * static_cast<double>(s.numel().value()) * static_cast<double>(s.back().value());
}

constexpr OpDef matrix_row(const char* name, Names in, const AttrsType* a = nullptr) {
  return make_row(name, Family::index, Types::same, in, a)
      .batch(stack_batch)
      .flops(cubic_flops)
      .autocast(Autocast::f32_inside);
}
constexpr const char* kSingular = "matrix {} of the stack is singular\nUse pinv or lstsq.";
constexpr const char* kNoConvergence =
    "matrix {} of the stack contains NaN or infinity, or the iteration did not converge";

}  // namespace

namespace op {
constinit const OpDef cholesky =
    matrix_row("cholesky", {"A"}, fields<CholeskyAttrs>())
        .outputs({"L"})
        .infer(square_infer)
        .vjp(cholesky_vjp, 0, 1)
        .reference(detail::run_cholesky)
        .errors({"matrix {} of the stack is not positive definite\nAdd a multiple of the identity, "
                 "or use eigh."})
        .doc("Triangular factor of a positive definite matrix.");
constinit const OpDef solve_triangular =
    matrix_row("solve_triangular", {"A", "B"}, fields<TriangularAttrs>())
        .outputs({"X"})
        .infer(solve_infer)
        .vjp(solve_triangular_vjp, 1, 1)
        .reference(detail::run_solve_triangular)
        .doc("X with A X = B for a triangular A.");
constinit const OpDef lu_factor = matrix_row("lu_factor", {"A"})
                                      .outputs({"LU", "pivots"})
                                      .infer(lu_factor_infer)
                                      .vjp(lu_factor_vjp, 0, 3)
                                      .reference(detail::run_lu_factor)
                                      .doc(
                                          "Both factors of A = P L U in one matrix, and the row "
                                          "swaps.");
constinit const OpDef lu_permutation =
    matrix_row("lu_permutation", {"pivots"}, fields<ShapeAttrs>())
        .outputs({"rows"})
        .type_rule(Types::custom)
        .autocast(Autocast::none)
        .flag(kNotDifferentiable)
        .infer(lu_permutation_infer)
        .reference(detail::run_lu_permutation)
        .errors({"pivot {} is outside of the matrix; pivots are counted from 1"})
        .doc("For each row of the factors its row in A.");
constinit const OpDef solve = matrix_row("solve", {"A", "B"})
                                  .outputs({"X"})
                                  .infer(solve_infer)
                                  .vjp(solve_vjp, 1, 1)
                                  .reference(detail::run_solve)
                                  .errors({kSingular})
                                  .doc("X with A X = B.");
constinit const OpDef inv = matrix_row("inv", {"A"})
                                .infer(square_infer)
                                .vjp(inv_vjp, 0, 1)
                                .reference(detail::run_inv)
                                .errors({kSingular})
                                .doc("Inverse of a square matrix.");
constinit const OpDef det = matrix_row("det", {"A"})
                                .infer(det_infer)
                                .vjp(det_vjp, 1)
                                .reference(detail::run_det)
                                .doc("Determinant.");
constinit const OpDef slogdet = matrix_row("slogdet", {"A"})
                                    .outputs({"sign", "logabsdet"})
                                    .infer(det_infer)
                                    .vjp(slogdet_vjp, 1)
                                    .reference(detail::run_slogdet)
                                    .doc("Sign of the determinant and logarithm of its magnitude.");
constinit const OpDef cofactor =
    matrix_row("cofactor", {"A"})
        .infer(square_infer)
        .vjp(cofactor_vjp, 1)
        .reference(detail::run_cofactor)
        .errors({kNoConvergence})
        .doc("Matrix of cofactors, singular matrices included: the derivative of det.");
constinit const OpDef qr = matrix_row("qr", {"A"}, fields<QrAttrs>())
                               .outputs({"Q", "R"})
                               .infer(qr_infer)
                               .vjp(qr_vjp, 0, 3)
                               .reference(detail::run_qr)
                               .doc("Orthonormal columns Q and a triangular R with A = Q R.");
constinit const OpDef eigh = matrix_row("eigh", {"A"}, fields<CholeskyAttrs>())
                                 .outputs({"L", "V"})
                                 .infer(eigh_infer)
                                 .vjp(eigh_vjp, 0, 3)
                                 .reference(detail::run_eigh)
                                 .errors({kNoConvergence})
                                 .doc(
                                     "Increasing eigenvalues, and eigenvectors of a symmetric "
                                     "matrix.");
constinit const OpDef svd = matrix_row("svd", {"A"}, fields<SvdAttrs>())
                                .outputs({"U", "S", "Vh"})
                                .infer(svd_infer)
                                .vjp(svd_vjp, 0, 7)
                                .reference(detail::run_svd)
                                .errors({kNoConvergence})
                                .doc("Singular value decomposition A = U diag(S) Vh.");
constinit const OpDef pinv = matrix_row("pinv", {"A"}, fields<linalg::PinvAttrs>())
                                 .infer(pinv_infer)
                                 .vjp(pinv_vjp, 1, 1)
                                 .reference(detail::run_pinv)
                                 .errors({kNoConvergence})
                                 .doc("Moore-Penrose inverse.");
constinit const OpDef matrix_exp = matrix_row("matrix_exp", {"A"})
                                       .infer(square_infer)
                                       .vjp(matrix_exp_vjp, 1)
                                       .reference(detail::run_matrix_exp)
                                       .doc("Exponential of a square matrix.");
}  // namespace op

std::span<const OpDef* const> linalg_rows() {
  static constexpr const OpDef* kRows[] = {&op::cholesky,  &op::solve_triangular,
                                           &op::lu_factor, &op::lu_permutation,
                                           &op::solve,     &op::inv,
                                           &op::det,       &op::slogdet,
                                           &op::cofactor,  &op::qr,
                                           &op::eigh,      &op::svd,
                                           &op::pinv,      &op::matrix_exp};
  return kRows;
}

}  // namespace tandem
