// SPDX-License-Identifier: Apache-2.0
// What golden data cannot say of the functions under PyTorch's names: random ones, methods of
// tensors and parameters, errors, derivatives that PyTorch does not have, traces.
#include <cmath>
#include <functional>

#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

class NamesTest : public OpsTest {
 protected:
  void SetUp() override { manual_seed(3); }
};

double share(const Tensor& truth) { return truth.to(float64).mean().item<double>(); }

// An error names the function that was called, not one that it is made of.
TEST_F(NamesTest, ErrorsOfPiecesNameTheFunction) {
  const Tensor x = ones({2, 4});
  const struct {
    const char* name;
    std::function<void()> call;
  } cases[] = {
      {"slice", [&] { slice(x, 7, 0, 1); }},
      {"narrow", [&] { narrow(x, 7, 0, 1); }},
      {"split", [&] { split(x, 2, 7); }},
      {"split", [&] { split(x, std::vector<int64_t>{2}, 7); }},
      {"chunk", [&] { chunk(x, 2, 7); }},
      {"unbind", [&] { unbind(x, 7); }},
      {"glu", [&] { glu(x, 7); }},
      {"glu", [&] { glu(ones({3}), 0); }},
  };
  for (const auto& c : cases) {
    try {
      c.call();
      ADD_FAILURE() << c.name;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).rfind(std::string(c.name) + ": ", 0), 0u) << e.what();
    }
  }
}

TEST_F(NamesTest, MethodsAreTheFunctions) {
  const Tensor x = randn({3, 4}, float64), y = randn({3, 4}, float64);
  EXPECT_TRUE(equal(x.add(y, 2), x + y * 2));
  EXPECT_TRUE(equal(x.clamp(-1, y), clamp(x, -1, y)));
  EXPECT_TRUE(equal(x.where(x > 0, -1.0), where(x > 0, x, -1.0)));
  EXPECT_TRUE(equal(x.polygamma(1), polygamma(1, x)));
  EXPECT_TRUE(equal(x.index({Slice(), 0}), index(x, {Slice(), 0})));
  EXPECT_TRUE(equal(x.scatter(1, zeros({3, 1}, int64), 9.0).select(1, 0), full({3}, 9.0, float64)));
  EXPECT_EQ(x.new_full({2}, 1).dtype(), float64);
  EXPECT_EQ(x.half().dtype(), float16);
  EXPECT_EQ(x.element_size(), 8);
  EXPECT_EQ(x.tolist<double>(), x.to_vector<double>());
  // Those of a Param are of its value, and pass gradients to it.
  Param p(x);
  p.mul(y).sum().backward();
  EXPECT_TRUE(equal(p.grad(), y));
  EXPECT_TRUE(equal(p.t().unsqueeze(0), x.t().unsqueeze(0)));
}

TEST_F(NamesTest, RandomFunctionsKeepWhatTheyPromise) {
  const Tensor x = randn({200, 50});
  const Tensor kept = alpha_dropout(x, 0.3, true);
  EXPECT_NEAR(kept.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(kept.std().item<double>(), 1, 0.05);
  const Tensor channels = dropout2d(ones({40, 20, 3, 3}), 0.25);
  EXPECT_TRUE(equal(channels, channels.select(3, 0).select(2, 0).unsqueeze(-1).unsqueeze(-1).expand(
                                  channels.shape())));
  EXPECT_NEAR(share(channels == 0), 0.25, 0.06);
  const Tensor slopes = rrelu(full({1000}, -1.0f), 0.1, 0.3, true);
  EXPECT_TRUE(all((slopes < -0.1) & (slopes >= -0.3)).item<bool>());
  EXPECT_TRUE(all(randint_like(x, 2, 5) >= 2).item<bool>());
  // The share of a class is its softmax.
  const Tensor logits = log(tensor({0.2f, 0.5f, 0.3f})).expand({4000, 3});
  const Tensor drawn = gumbel_softmax(logits, 0.5, /*hard=*/true);
  EXPECT_TRUE(equal(drawn.sum({1}), ones({4000})));
  EXPECT_NEAR(drawn.select(1, 1).mean().item<double>(), 0.5, 0.04);
}

TEST_F(NamesTest, LowRankDecompositionsFindALowRank) {
  const Tensor a = matmul(randn({8, 3}, float64), randn({3, 6}, float64));
  const auto [u, s, v] = svd_lowrank(a, 3);
  EXPECT_LT((matmul(u * s, v.t()) - a).abs().max().item<double>(), 1e-10);
  const auto [pu, ps, pv] = pca_lowrank(a, 3);
  EXPECT_LT((matmul(pu * ps, pv.t()) - (a - a.mean({0}, true))).abs().max().item<double>(), 1e-10);
  const Tensor m = a.t().matmul(a) + eye(6, -1, float64), b = eye(6, -1, float64) * 2;
  const auto [values, vectors] = lobpcg(m, 2, b);
  EXPECT_LT((m.matmul(vectors) - b.matmul(vectors) * values).abs().max().item<double>(), 1e-9);
}

// PyTorch has no derivatives of these.
TEST_F(NamesTest, DerivativesOfSpecialFunctions) {
  const Tensor x = tensor({0.3, 1.7, 5.0, 7.5, 9.0, 30.0}, float64);
  for (auto f : {special::bessel_j0, special::bessel_j1, special::bessel_y0, special::bessel_y1,
                 special::modified_bessel_k0, special::scaled_modified_bessel_k1, special::airy_ai})
    gradcheck([&](std::span<const Tensor> v) { return Tensors{f(v[0], SourceLocation::here())}; },
              {x});
  gradcheck(
      [](std::span<const Tensor> v) { return Tensors{special::legendre_polynomial_p(v[0], 4)}; },
      {tensor({-0.4, 0.1, 0.8}, float64)});
  // At 0, where one part of the formula is singular.
  Tensor zero = zeros({1}, float64).requires_grad_();
  special::bessel_j1(zero).sum().backward();
  EXPECT_NEAR(zero.grad().item<double>(), 0.5, 1e-12);
}

TEST_F(NamesTest, LdlSolveIsDifferentiableInTheRightSide) {
  const Tensor a = randn({4, 4}, float64), s = a + a.t();
  const auto [ld, pivots] = linalg::ldl_factor(s);
  gradcheck([&, ld = ld, pivots = pivots](
                std::span<const Tensor> v) { return Tensors{linalg::ldl_solve(ld, pivots, v[0])}; },
            {randn({4, 2}, float64)});
  const auto [stacked, pivot_rows] = linalg::ldl_factor(stack({s, eye(4, -1, float64), s * 2}));
  expect_vmap(
      [](const Tensor& m, const Tensor& p, const Tensor& r) { return linalg::ldl_solve(m, p, r); },
      stacked, pivot_rows, randn({3, 4, 2}, float64));
  const Tensor b = randn({4, 1}, float64);
  EXPECT_LT((s.matmul(linalg::ldl_solve(ld, pivots, b)) - b).abs().max().item<double>(), 1e-9);
}

TEST_F(NamesTest, FailuresAsNumbersAndAsErrors) {
  const Tensor bad = tensor({{1.0f, 2.0f}, {2.0f, 1.0f}});
  const auto r = linalg::cholesky_ex(stack({eye(2), bad}));
  EXPECT_EQ(r.info.to_vector<int64_t>(), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(all(isnan(r.L[1])).item<bool>());
  EXPECT_TRUE(equal(r.L[0], eye(2)));
  expect_error(ErrorKind::Value, "matrix 1 is not positive definite (info 2)", [&] {
    linalg::cholesky_ex(stack({eye(2), bad}), false, true);
  });
  expect_error(ErrorKind::Value, "is singular", [] { linalg::ldl_factor(zeros({2, 2})); });
  expect_error(ErrorKind::Value, "pivots of matrix 0", [] {
    linalg::ldl_solve(eye(2), zeros({2}, int32), ones({2, 1}));
  });
}

TEST_F(NamesTest, ErrorsNameTheFunction) {
  expect_error(ErrorKind::Shape, "hsplit: dimension 0 of [5]", [] { hsplit(arange(5), 2); });
  expect_error(ErrorKind::Index, "as_strided:", [] { as_strided(arange(5), {2, 2}, {3, 1}, 1); });
  expect_error(ErrorKind::Shape,
               "slice_scatter:", [] { slice_scatter(zeros({4}), ones({3}), 0, 0, 2); });
  expect_error(ErrorKind::DType, "gcd:", [] { gcd(ones({2}), 2); });
  expect_error(ErrorKind::Value, "histogramdd:", [] { histogramdd(ones({3, 2}), {4, 4, 4}); });
  expect_error(ErrorKind::Value, "range:", [] { range(0, 10, -1); });
}

// Functions of sizes are traced with them open; those of values are computed in the trace.
TEST_F(NamesTest, Traces) {
  const auto f = [](const Tensor& x) {
    const Tensor g = as_strided(x, {2, 2}, {1, 2});
    return hstack({g, gcd(floor(x.narrow(0, 0, 2)).to(int64).unsqueeze(1), 6).to(x.dtype())}) +
           trapezoid(x);
  };
  const Tensor x = tensor({4.f, 9.f, 2.f, 7.f});
  const Spec spec = spec_of(x);
  const Ref<Graph> g = trace([&](std::span<const Tensor> v) { return Tensors{f(v[0])}; },
                             {&spec, 1}, Captures::refuse);
  EXPECT_TRUE(equal(run(*g, {&x, 1})[0], f(x)));
}

TEST_F(NamesTest, Dtypes) {
  EXPECT_EQ(result_type(ones({2}, int32), 1.5), float32);
  EXPECT_EQ(result_type(ones({2}, float16), ones({}, float64)), float16);
  EXPECT_EQ(result_type(ones({2}, uint8), ones({2}, int8)), int16);
  EXPECT_EQ(result_type(ones({2}, boolean), 3), int64);
  EXPECT_TRUE(can_cast(int64, float16));
  EXPECT_FALSE(can_cast(float32, int64));
  EXPECT_FALSE(can_cast(uint8, boolean));
  EXPECT_TRUE(equal(range(1, 4), tensor({1.f, 2.f, 3.f, 4.f})));
  EXPECT_TRUE(equal(range(0, 1, 0.25), tensor({0.f, 0.25f, 0.5f, 0.75f, 1.f})));
}

}  // namespace
}  // namespace tandem::testing_ops
