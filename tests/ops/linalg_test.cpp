// SPDX-License-Identifier: Apache-2.0
// Linear algebra: the defining property of each decomposition, gradients of symmetric inputs and of
// functions that do not depend on the choice of vectors, singular and empty matrices, error texts.
#include <cmath>
#include <limits>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

using namespace linalg;

class LinalgTest : public OpsTest {
 protected:
  void SetUp() override { manual_seed(5); }
  static Tensor regular(Shape s) {
    return randn(s, float64) * 0.3 + eye(s[-2 + s.rank()].value(), s.back().value(), float64) * 2;
  }
  static Tensor symmetric(const Tensor& a) { return (a + a.transpose(-2, -1)) * 0.5; }
  static Tensor positive(Shape s) {
    Tensor a = randn(s, float64);
    return matmul(a, a.transpose(-2, -1)) * 0.3 + eye(s.back().value(), -1, float64);
  }
};

double distance(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape().to_string(), b.shape().to_string());
  if (a.numel() == 0) return 0;
  return (a - b).abs().max().to(float64).item<double>();
}
Tensor turned(const Tensor& a) { return a.transpose(-2, -1); }
Tensor product(const Tensor& a, const Tensor& b) { return tandem::matmul(a, b); }

TEST_F(LinalgTest, Cholesky) {
  const Tensor a = positive({2, 3, 4, 4});
  const Tensor l = cholesky(a), u = cholesky(a, true);
  EXPECT_LT(distance(product(l, turned(l)), a), 1e-12);
  EXPECT_LT(distance(product(turned(u), u), a), 1e-12);
  EXPECT_EQ(distance(l, tril(l)), 0);
  const Tensor b = randn({2, 3, 4, 2}, float64);
  EXPECT_LT(distance(product(a, cholesky_solve(b, l)), b), 1e-11);
  EXPECT_LT(distance(product(a, cholesky_solve(b, u, true)), b), 1e-11);
  EXPECT_LT(distance(product(a, cholesky_inverse(l)), eye(4, -1, float64).expand({2, 3, 4, 4})),
            1e-11);
  // The other triangle is not read.
  EXPECT_LT(distance(cholesky(tril(a)), l), 1e-14);
  const Tensor f = cholesky(a.to(float32));
  EXPECT_EQ(f.dtype(), float32);
  EXPECT_LT(distance(f.to(float64), l), 1e-5);
  for (bool upper : {false, true}) {
    auto fn = [&](std::span<const Tensor> x) -> Tensors {
      return {cholesky(symmetric(x[0]), upper)};
    };
    EXPECT_TRUE(gradcheck(fn, {a[0]}, {.order = 2}));
  }
  expect_error(ErrorKind::Value, "matrix 1 of the stack is not positive definite", [] {
    cholesky(tensor({{{2.f, 0.f}, {0.f, 1.f}}, {{1.f, 2.f}, {2.f, 1.f}}}));
  });
  expect_error(ErrorKind::Value, "not positive definite", [] {
    cholesky(full({2, 2}, std::nan("")));
  });
}

TEST_F(LinalgTest, SolversAndFactors) {
  const Tensor a = regular({2, 1, 4, 4}), b = randn({3, 4, 2}, float64);
  EXPECT_LT(distance(product(a, solve(a, b)), b.expand({2, 3, 4, 2})), 1e-12);
  const Tensor right = randn({3, 2, 4}, float64);
  EXPECT_LT(distance(product(solve(a, right, false), a), right.expand({2, 3, 2, 4})), 1e-12);
  const Tensor v = randn({4}, float64);
  EXPECT_LT(distance(tandem::matmul(a[0][0], solve(a[0][0], v)), v), 1e-12);
  const auto [lu_packed, pivots] = lu_factor(a);
  EXPECT_EQ(pivots.dtype(), int32);
  const auto [p, l, u] = linalg::lu(a);
  EXPECT_LT(distance(product(p, product(l, u)), a), 1e-12);
  EXPECT_LT(distance(linalg::lu_solve(lu_packed, pivots, b), solve(a, b)), 1e-12);
  // Rows that have to be swapped more than once.
  const Tensor hard = tensor({{0., 0., 1.}, {1., 0., 3.}, {4., 5., 6.}}, float64);
  const auto [p2, l2, u2] = linalg::lu(hard);
  EXPECT_LT(distance(product(p2, product(l2, u2)), hard), 1e-15);
  expect_tensor(lu_factor(hard).pivots, {3}, {3, 2, 3});
  for (bool upper : {false, true})
    for (bool left : {false, true})
      for (bool unit : {false, true}) {
        Tensor t = upper ? triu(a) : tril(a);
        if (unit)
          t = t - tandem::diagonal(t, 0, -2, -1).unsqueeze(-1) * eye(4, -1, float64) +
              eye(4, -1, float64);
        const Tensor rhs = left ? b : right;
        const Tensor x = solve_triangular(a, rhs, upper, left, unit);
        EXPECT_LT(distance(left ? product(t, x) : product(x, t), rhs.expand(x.shape())), 1e-11);
      }
  auto fn = [&](std::span<const Tensor> x) -> Tensors {
    const auto [f, piv] = lu_factor(x[0]);
    return {linalg::lu_solve(f, piv, x[1]), solve(x[0], x[1]), inv(x[0])};
  };
  EXPECT_TRUE(gradcheck(fn, {a[0][0], b[0]}, {.order = 2}));
  const Tensor singular = tensor({{1., 2.}, {2., 4.}}, float64);
  expect_error(ErrorKind::Value, "matrix 0 of the stack is singular", [&] { inv(singular); });
  expect_error(ErrorKind::Value, "singular", [&] { solve(singular, ones({2}, float64)); });
  expect_error(ErrorKind::Value, "pivot 0 is outside", [&] {
    linalg::lu_solve(singular, zeros({2}, int32), ones({2, 1}, float64));
  });
}

TEST_F(LinalgTest, Determinants) {
  const Tensor a = regular({5, 3, 3});
  const auto [sign, log_abs] = slogdet(a * -1);
  EXPECT_LT(distance(sign * exp(log_abs), det(a) * -1), 1e-12);
  EXPECT_TRUE(std::isnan(logdet(a * -1)[0].item<double>()));
  EXPECT_LT(distance(logdet(a), log(det(a))), 1e-13);
  auto fn = [](std::span<const Tensor> x) -> Tensors { return {det(x[0]), logdet(x[0])}; };
  EXPECT_TRUE(gradcheck(fn, {a[0]}, {.order = 2}));
  // Determinants that are too large or too small for f32 leave the derivative finite.
  for (const float size : {1e20f, 1e-25f}) {
    const Tensor big = (eye(2) * size).requires_grad_();
    det(big).backward();
    EXPECT_NEAR(big.grad()[0][0].item<double>() / size, 1, 1e-5);
    EXPECT_EQ(big.grad()[0][1].item<float>(), 0);
  }
  const Tensor tiny = full({1, 1}, 1e-40).requires_grad_();
  det(tiny).sum().backward();
  EXPECT_EQ(tiny.grad().item<float>(), 1);
  // The derivative of det is the matrix of cofactors, singular matrices included.
  auto only = [](std::span<const Tensor> x) -> Tensors { return {det(x[0])}; };
  for (const Tensor& s :
       {tensor({{1., 2., 3.}, {2., 4., 6.}, {0., 1., 5.}}, float64),
        tensor({{1., 2., 3.}, {2., 4., 6.}, {3., 6., 9.}}, float64), zeros({3, 3}, float64)})
    EXPECT_TRUE(gradcheck(only, {s}, {.order = 1}));
  const auto [s0, l0] = slogdet(zeros({2, 2}));
  EXPECT_EQ(s0.item<float>(), 0);
  EXPECT_EQ(l0.item<float>(), -std::numeric_limits<float>::infinity());
  expect_tensor(det(zeros({2, 0, 0})), {2}, {1, 1});
}

TEST_F(LinalgTest, QrSvdEigh) {
  for (const Shape& s : {Shape(2, 5, 3), Shape(2, 3, 5), Shape(2, 4, 4), Shape(40, 40)}) {
    const Tensor a = randn(s, float64);
    const int64_t k = std::min(s[s.rank() - 2].value(), s.back().value());
    for (const char* mode : {"reduced", "complete"}) {
      const auto [q, r] = qr(a, mode);
      EXPECT_LT(distance(product(q, r), a), 1e-12);
      EXPECT_LT(distance(product(turned(q), q),
                         eye(q.size(-1), -1, float64).expand(product(turned(q), q).shape())),
                1e-12);
      EXPECT_EQ(distance(r, triu(r)), 0);
    }
    EXPECT_LT(distance(qr(a, "r").R, qr(a).R), 1e-12);
    const auto [u, values_, vh] = linalg::svd(a, false);
    EXPECT_LT(distance(product(u * values_.unsqueeze(-2), vh), a), 1e-12);
    EXPECT_LT(
        distance(product(turned(u), u), eye(k, -1, float64).expand(product(turned(u), u).shape())),
        1e-12);
    const auto [uf, sf, vf] = linalg::svd(a);
    EXPECT_EQ(uf.size(-1), a.size(-2));
    EXPECT_EQ(vf.size(-2), a.size(-1));
    EXPECT_LT(distance(sf, svdvals(a)), 1e-12);
    EXPECT_LT(distance(product(turned(uf), uf), eye(uf.size(-1), -1, float64).expand(uf.shape())),
              1e-12);
  }
  const Tensor a = symmetric(randn({3, 5, 5}, float64));
  const auto [w, v] = eigh(a);
  EXPECT_LT(distance(product(v * w.unsqueeze(-2), turned(v)), a), 1e-12);
  EXPECT_LT(distance(eigvalsh(triu(a), "U"), w), 1e-12);
  EXPECT_EQ(distance(w, sort(w).values), 0);
  expect_error(ErrorKind::Unsupported, "there is no complex dtype", [&] { eig(a); });
  expect_error(ErrorKind::Unsupported, "eigvals", [&] { eigvals(a); });
  expect_error(ErrorKind::Value, "matrix 0 of the stack contains NaN", [] {
    linalg::svd(full({2, 2}, std::nan("")));
  });
  expect_error(ErrorKind::Value, "must be L or U", [&] { eigh(a, "X"); });
}

// Functions of the decompositions that are invariant to signs.
TEST_F(LinalgTest, GradientsThroughVectors) {
  const Tensor sym =
      symmetric(regular({3, 3}) + tensor({{0., 0., 0.}, {0., 1., 0.}, {0., 0., 3.}}, float64));
  const Tensor weight = randn({3, 3}, float64);
  auto of_eigh = [&](std::span<const Tensor> x) -> Tensors {
    const auto [w, v] = eigh(symmetric(x[0]));
    return {product(v * exp(w).unsqueeze(-2), turned(v)) * weight, w, square(v)};
  };
  EXPECT_TRUE(gradcheck(of_eigh, {sym}, {.order = 2}));
  for (const Shape& s : {Shape(4, 3), Shape(3, 4), Shape(3, 3)}) {
    auto of_svd = [&](std::span<const Tensor> x) -> Tensors {
      const auto [u, s, vh] = linalg::svd(x[0], false);
      return {square(u), s, square(vh), product(u * square(s).unsqueeze(-2), vh)};
    };
    EXPECT_TRUE(gradcheck(of_svd, {randn(s, float64)}, {.order = 2}));
  }
  auto of_full = [&](std::span<const Tensor> x) -> Tensors { return {linalg::svd(x[0], true).S}; };
  EXPECT_TRUE(gradcheck(of_full, {randn({4, 3}, float64)}, {.order = 1}));
  const Tensor x = randn({4, 3}, float64).requires_grad_();
  expect_error(ErrorKind::Unsupported, "full_matrices",
               [&] { linalg::svd(x, true).U.sum().backward(); });
  expect_error(ErrorKind::Unsupported, "mode \"complete\"",
               [&] { qr(x, "complete").Q.sum().backward(); });
}

TEST_F(LinalgTest, LeastSquaresAndRank) {
  const Tensor a = randn({2, 6, 3}, float64), b = randn({2, 6, 2}, float64);
  const LstsqResult r = lstsq(a, b, {}, "gelsd");
  for (const char* driver : {"gels", "gelsy"})
    EXPECT_LT(distance(lstsq(a, b, {}, driver).solution, r.solution), 1e-12) << driver;
  // The rest is orthogonal to the columns.
  EXPECT_LT(distance(product(turned(a), product(a, r.solution) - b), zeros({2, 3, 2}, float64)),
            1e-12);
  EXPECT_LT(distance(r.residuals, (product(a, r.solution) - b).square().sum({-2})), 1e-12);
  expect_tensor(r.rank, {2}, {3, 3});
  const Tensor wide = turned(a), c = randn({2, 3, 1}, float64);
  EXPECT_LT(distance(product(wide, lstsq(wide, c).solution), c), 1e-12);
  EXPECT_EQ(lstsq(wide, c).residuals.numel(), 0);
  EXPECT_EQ(lstsq(a[0], b[0].select(-1, 0)).solution.shape(), Shape(3));
  const Tensor low = product(randn({5, 2}, float64), randn({2, 4}, float64));
  EXPECT_EQ(matrix_rank(low).item<int64_t>(), 2);
  EXPECT_EQ(matrix_rank(low, 1e9).item<int64_t>(), 0);
  const Tensor p = pinv(low);
  EXPECT_LT(distance(product(low, product(p, low)), low), 1e-11);
  EXPECT_LT(distance(product(p, product(low, p)), p), 1e-11);
  auto fn = [](std::span<const Tensor> x) -> Tensors { return {lstsq(x[0], x[1]).solution}; };
  EXPECT_TRUE(gradcheck(fn, {a[0], b[0]}, {.order = 2}));
}

TEST_F(LinalgTest, PowersNormsChains) {
  const Tensor a = regular({2, 3, 3});
  EXPECT_LT(distance(matrix_power(a, 5), product(product(product(product(a, a), a), a), a)), 1e-10);
  EXPECT_LT(distance(product(matrix_power(a, -2), product(a, a)), matrix_power(a, 0)), 1e-12);
  EXPECT_LT(distance(product(matrix_exp(a), matrix_exp(a * -1)), matrix_power(a, 0)), 1e-11);
  const Tensor turn = tensor({{0., -1.}, {1., 0.}}, float64) * 40.0;
  EXPECT_NEAR(matrix_exp(turn)[0][0].item<double>(), std::cos(40.0), 1e-12);
  const double inf = HUGE_VAL;
  const Tensor m = tensor({{1., -2.}, {3., 4.}}, float64);
  EXPECT_EQ(matrix_norm(m, 1.0).item<double>(), 6);
  EXPECT_EQ(matrix_norm(m, -1.0).item<double>(), 4);
  EXPECT_EQ(matrix_norm(m, inf).item<double>(), 7);
  EXPECT_EQ(matrix_norm(m, -inf).item<double>(), 3);
  EXPECT_NEAR(matrix_norm(m).item<double>(), std::sqrt(30.0), 1e-14);
  EXPECT_NEAR((matrix_norm(m, 2.0) * matrix_norm(m, -2.0)).item<double>(), 10, 1e-13);
  EXPECT_EQ(matrix_norm(a, "nuc", {-2, -1}, true).shape(), Shape(2, 1, 1));
  EXPECT_EQ(matrix_norm(a, 1.0, {0, 2}, true).shape(), Shape(1, 3, 1));
  EXPECT_NEAR(cond(m).item<double>(), (matrix_norm(m, 2.0) / matrix_norm(m, -2.0)).item<double>(),
              1e-13);
  EXPECT_NEAR(cond(m, 1.0).item<double>(), 6 * 0.7, 1e-14);
  EXPECT_EQ(linalg::norm(m, Order(1.0), {1}).shape(), Shape(2));
  const std::vector<Tensor> parts = {randn({10}, float64), randn({10, 30}, float64),
                                     randn({30, 2}, float64), randn({2}, float64)};
  EXPECT_LT(distance(multi_dot(parts),
                     tandem::matmul(tandem::matmul(tandem::matmul(parts[0], parts[1]), parts[2]),
                                    parts[3])),
            1e-11);
  expect_error(ErrorKind::Shape, "tensors 0 and 1 do not fit", [&] { multi_dot({m, a[0]}); });
  expect_error(ErrorKind::Value, "must be fro or nuc", [&] { matrix_norm(m, "frob"); });
}

TEST_F(LinalgTest, WrongInputs) {
  expect_error(ErrorKind::DType, "expected float32 or float64", [] { inv(ones({2, 2}, int64)); });
  expect_error(ErrorKind::Shape, "expected square matrices, got shape [2, 3]", [] {
    det(ones({2, 3}));
  });
  expect_error(ErrorKind::Shape, "must be a matrix", [] { linalg::svd(ones({3})); });
  expect_error(ErrorKind::Shape, "B must have as many rows as A", [] {
    solve(eye(3), ones({2, 2}));
  });
  expect_error(ErrorKind::DType, "A is float32, B is float64", [] {
    solve(eye(3), ones({3, 2}, float64));
  });
  for (const Shape& s : {Shape(0, 3, 3), Shape(2, 0, 0)}) {
    EXPECT_EQ(inv(zeros(s)).shape(), s);
    EXPECT_EQ(linalg::svd(zeros(s)).U.shape(), s);
    EXPECT_EQ(eigh(zeros(s)).eigenvectors.shape(), s);
  }
  EXPECT_EQ(linalg::svd(zeros({3, 0})).U.shape(), Shape(3, 3));
  EXPECT_LT(distance(linalg::svd(zeros({3, 0})).U, eye(3)), 1e-30);
}

}  // namespace
}  // namespace tandem::testing_ops
