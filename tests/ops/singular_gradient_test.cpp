// SPDX-License-Identifier: Apache-2.0
// Gradients where functions have kinks, poles and ties: at 0, at equal values, at infinities and
// NaN, of empty tensors. The wanted values are those of PyTorch's formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::singular {
namespace {

using Column = std::vector<double>;
using Tensors = std::vector<Tensor>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kAny = 12345;  // not compared
constexpr double kRootPi = 1 / std::numbers::inv_sqrtpi;
constexpr double kRootHalf = 0.5 * std::numbers::sqrt2;

struct SingularCase {
  const char* name;
  Tensor (*f)(const Tensors&);
  std::vector<Column> in;    ///< the inputs, one-dimensional
  std::vector<Column> want;  ///< the gradients of f's sum
};

// The gradient of `f`'s sum for every input.
Tensors gradients_of(const SingularCase& c, DType dtype) {
  Tensors in;
  for (const Column& x : c.in) {
    Tensor t = x.empty() ? zeros({0}, dtype) : tensor(x).to(dtype);
    in.push_back(t.detach().requires_grad_());
  }
  c.f(in).sum().backward();
  Tensors out;
  for (const Tensor& t : in) out.push_back(t.grad().defined() ? t.grad() : zeros_like(t));
  return out;
}

void expect_gradients(const SingularCase& c, DType dtype, double tolerance) {
  const Tensors got = gradients_of(c, dtype);
  for (size_t k = 0; k < c.want.size(); ++k) {
    const Column values = got[k].to(float64).to_vector<double>();
    ASSERT_EQ(values.size(), c.want[k].size()) << c.name;
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = c.want[k][i], v = values[i];
      if (want == kAny || v == want || (std::isnan(v) && std::isnan(want))) continue;
      EXPECT_LE(std::fabs(v - want), tolerance * (1 + std::fabs(want)))
          << c.name << " of " << to_string(dtype) << ": input " << k << " is " << c.in[k][i]
          << ", its gradient is " << v << ", wanted " << want;
    }
  }
}

void expect_all(std::span<const SingularCase> cases) {
  for (const SingularCase& c : cases) {
    expect_gradients(c, float64, 1e-9);
    expect_gradients(c, float32, 1e-5);
  }
}

#define ONE(name, ...)                                              \
  {                                                                 \
#name, [](const Tensors& x) { return name(x[0]); }, __VA_ARGS__ \
  }
#define TWO(name, ...)                                                    \
  {                                                                       \
#name, [](const Tensors& x) { return name(x[0], x[1]); }, __VA_ARGS__ \
  }
#define DO(text, body, ...)                                            \
  {                                                                    \
    text, [](const Tensors& x) -> Tensor { return body; }, __VA_ARGS__ \
  }

TEST(SingularGradient, FunctionsOfOneNumber) {
  const SingularCase kCases[] = {
      ONE(abs, {{-2, 0, 3, kInf, -kInf}}, {{-1, 0, 1, 1, -1}}),
      ONE(sign, {{0, 2, kInf}}, {{0, 0, 0}}),
      ONE(floor, {{0, 0.5, kInf}}, {{0, 0, 0}}),
      ONE(round, {{0.5, kNaN}}, {{0, 0}}),
      ONE(frac, {{0, 1.5, -2}}, {{1, 1, 1}}),
      ONE(square, {{0, kInf}}, {{0, kInf}}),
      ONE(sqrt, {{0, 4, kInf}}, {{kInf, 0.25, 0}}),
      ONE(rsqrt, {{0, kInf}}, {{-kInf, 0}}),
      ONE(reciprocal, {{0, kInf, -kInf}}, {{-kInf, 0, 0}}),
      ONE(exp, {{-kInf, 0, kInf}}, {{0, 1, kInf}}),
      ONE(exp2, {{-kInf, 0}}, {{0, std::numbers::ln2}}),
      ONE(expm1, {{-kInf, 0}}, {{0, 1}}),
      ONE(log, {{0, 1, kInf}}, {{kInf, 1, 0}}),
      ONE(log2, {{0, kInf}}, {{kInf, 0}}),
      ONE(log10, {{0, kInf}}, {{kInf, 0}}),
      ONE(log1p, {{-1, 0, kInf}}, {{kInf, 1, 0}}),
      ONE(sin, {{0, kInf}}, {{1, kNaN}}),
      ONE(cos, {{0, kInf}}, {{0, kNaN}}),
      ONE(tan, {{0}}, {{1}}),
      ONE(asin, {{0, 1, -1}}, {{1, kInf, kInf}}),
      ONE(acos, {{0, 1, -1}}, {{-1, -kInf, -kInf}}),
      ONE(atan, {{0, kInf, -kInf}}, {{1, 0, 0}}),
      ONE(sinh, {{0}}, {{1}}),
      ONE(cosh, {{0}}, {{0}}),
      ONE(tanh, {{0, kInf, -kInf}}, {{1, 0, 0}}),
      ONE(asinh, {{0, kInf}}, {{1, 0}}),
      ONE(acosh, {{1, kInf}}, {{kInf, 0}}),
      ONE(atanh, {{0, 1, -1}}, {{1, kInf, kInf}}),
      ONE(sinc, {{0, 1}}, {{0, -1}}),
      ONE(erf, {{0, kInf, -kInf}}, {{2 / kRootPi, 0, 0}}),
      ONE(erfc, {{0, kInf, -kInf}}, {{-2 / kRootPi, 0, 0}}),
      ONE(erfinv, {{0, 1, -1}}, {{kRootPi / 2, kInf, kInf}}),
      ONE(lgamma, {{1}}, {{-std::numbers::egamma}}),
      ONE(i0, {{0}}, {{0}}),
      ONE(i1, {{0}}, {{0.5}}),
      ONE(nan_to_num, {{kNaN, kInf, -kInf, 2}}, {{0, 0, 0, 1}}),
      ONE(logit, {{0, 0.5, 1, -1, 2, kNaN}}, {{kInf, 4, kInf, kNaN, kNaN, kNaN}}),
      ONE(rad2deg, {{0, kInf}}, {{180 / std::numbers::pi, 180 / std::numbers::pi}}),
      DO("clamp", clamp(x[0], -1.0, 1.0), {{-1, 0, 1, 2, -kInf, kInf}}, {{0, 1, 0, 0, 0, 0}}),
      DO("clamp_min", clamp_min(x[0], 0.0), {{0, -1, kInf}}, {{0, 0, 1}}),
      DO("clamp_max", clamp_max(x[0], 0.0), {{0, 1, -kInf}}, {{0, 0, 1}}),
  };
  expect_all(kCases);
}

TEST(SingularGradient, Activations) {
  const SingularCase kCases[] = {
      ONE(relu, {{0, -1, 2, kInf, -kInf, kNaN}}, {{0, 0, 1, 1, 0, 1}}),
      ONE(relu6, {{0, 3, 6, 7}}, {{0, 1, 0, 0}}),
      ONE(sigmoid, {{0, kInf, -kInf}}, {{0.25, 0, 0}}),
      ONE(logsigmoid, {{0, kInf, -kInf}}, {{0.5, 0, 1}}),
      ONE(silu, {{0}}, {{0.5}}),
      ONE(mish, {{0}}, {{0.6}}),
      ONE(gelu, {{0}}, {{0.5}}),
      ONE(selu, {{0, kInf, -kInf}}, {{1.7580993408473766, 1.0507009873554805, 0}}),
      ONE(elu, {{0, kInf, -kInf}}, {{1, 1, 0}}),
      ONE(celu, {{0, kInf, -kInf}}, {{1, 1, 0}}),
      ONE(softsign, {{0}}, {{1}}),
      ONE(tanhshrink, {{0, kInf}}, {{0, 1}}),
      ONE(hardsigmoid, {{-3, 0, 3}}, {{0, 1.0 / 6, 0}}),
      ONE(hardtanh, {{-1, 0, 1, kInf}}, {{0, 1, 0, 0}}),
      ONE(hardshrink, {{-0.5, 0, 0.5, 2}}, {{0, 0, 0, 1}}),
      ONE(softshrink, {{-0.5, 0, 0.5, 2}}, {{0, 0, 0, 1}}),
      ONE(leaky_relu, {{0, kInf, -kInf}}, {{0.01, 1, 0.01}}),
      ONE(softplus, {{0, kInf, -kInf}}, {{0.5, 1, 0}}),
      DO("softmax", softmax(x[0], 0), {{0, -kInf}}, {{0, 0}}),
      DO("log_softmax", log_softmax(x[0], 0), {{0, -kInf}}, {{-1, 1}}),
  };
  expect_all(kCases);
}

TEST(SingularGradient, FunctionsOfTwoNumbers) {
  const double ln2 = std::numbers::ln2;
  const SingularCase kCases[] = {
      TWO(maximum, {{2, 3}, {2, 1}}, {{0.5, 1}, {0.5, 0}}),
      TWO(minimum, {{2, 3}, {2, 1}}, {{0.5, 0}, {0.5, 1}}),
      TWO(fmax, {{kNaN, 1}, {1, kNaN}}, {{0, 1}, {1, 0}}),
      TWO(atan2, {{0, 1, 0, 0}, {0, 0, -1, 2}}, {{0, 0, -1, 0.5}, {0, -1, 0, 0}}),
      TWO(hypot, {{3, 0}, {4, 2}}, {{0.6, 0}, {0.8, 1}}),
      TWO(pow, {{0, 0, 0, 0, 0, 2}, {2, 1, 0, 0.5, -1, 0}},
          {{0, 1, 0, kInf, -kInf, 0}, {0, 0, 0, 0, -kInf, ln2}}),
      TWO(xlogy, {{0, 0, 2}, {0, 2, 0}}, {{0, ln2, -kInf}, {kAny, 0, kInf}}),
      TWO(xlog1py, {{0, 0, 2}, {-1, 1, -1}}, {{0, ln2, -kInf}, {kAny, 0, kInf}}),
      TWO(div, {{1, 0, 1}, {0, 1, kInf}}, {{kInf, 1, 0}, {-kInf, 0, 0}}),
      TWO(mul, {{0, kInf}, {kInf, 0}}, {{kInf, 0}, {0, kInf}}),
      TWO(copysign, {{0, 2, -2}, {1, -1, -1}}, {{0, -1, 1}, {0, 0, 0}}),
      TWO(logaddexp, {{0, 0}, {0, -kInf}}, {{0.5, 1}, {0.5, 0}}),
      TWO(l1_loss, {{2}, {2}}, {{0}, {0}}),
      TWO(mse_loss, {{2}, {2}}, {{0}, {0}}),
      TWO(smooth_l1_loss, {{2}, {2}}, {{0}, {0}}),
      TWO(huber_loss, {{2}, {2}}, {{0}, {0}}),
      DO("where", where(x[0] > 0.0, sqrt(x[0]), x[1]), {{4, -4}, {1, 1}}, {{0.25, kAny}, {0, 1}}),
      DO("cdist", cdist(x[0].unsqueeze(0), x[1].unsqueeze(0)), {{1, 2}, {1, 2}}, {{0, 0}, {0, 0}}),
      DO("cdist by absolutes", cdist(x[0].unsqueeze(0), x[1].unsqueeze(0), 1), {{1, 2}, {1, 3}},
         {{0, -1}, {0, 1}}),
  };
  expect_all(kCases);
}

TEST(SingularGradient, Reductions) {
  const double r = kRootHalf;
  const SingularCase kCases[] = {
      DO("sum", sum(x[0]), {{0, kInf, kNaN}}, {{1, 1, 1}}),
      DO("mean", mean(x[0]), {{0, kInf}}, {{0.5, 0.5}}),
      DO("prod with one 0", prod(x[0]), {{2, 0, 3}}, {{0, 6, 0}}),
      DO("prod with two 0", prod(x[0]), {{0, 0, 3}}, {{0, 0, 0}}),
      DO("amax of ties", amax(x[0]), {{1, 3, 3}}, {{0, 0.5, 0.5}}),
      DO("amin of ties", amin(x[0]), {{1, 1, 3}}, {{0.5, 0.5, 0}}),
      DO("amax of infinities", amax(x[0]), {{1, kInf, kInf}}, {{0, 0.5, 0.5}}),
      DO("max along a dim", max(x[0], 0).values, {{1, 3, 3}}, {{0, 1, 0}}),
      DO("var of a constant", var(x[0]), {{2, 2, 2}}, {{0, 0, 0}}),
      DO("std of a constant", tandem::std(x[0]), {{2, 2, 2}}, {{0, 0, 0}}),
      DO("std of 0.1", x[0].std(), {{0.1, 0.1, 0.1}}, {{0, 0, 0}}),
      DO("std of one", tandem::std(x[0], {}, 0), {{5}}, {{0}}),
      DO("std", tandem::std(x[0]), {{1, 3}}, {{-r, r}}),
      DO("std_mean of a constant", std_mean(x[0]).std, {{2, 2}}, {{0, 0}}),
      DO("norm of 0", norm(x[0]), {{0, 0}}, {{0, 0}}),
      DO("norm", norm(x[0]), {{3, 4}}, {{0.6, 0.8}}),
      DO("1-norm", norm(x[0], 1), {{0, -2}}, {{0, -1}}),
      DO("largest norm", norm(x[0], kInf), {{3, -3, 1}}, {{0.5, -0.5, 0}}),
      DO("3-norm of 0", norm(x[0], 3), {{0, 0}}, {{0, 0}}),
      DO("1.5-norm", norm(x[0], 1.5), {{0, 2}}, {{0, 1}}),
      DO("0.5-norm", norm(x[0], 0.5), {{0, -4}}, {{0, -1}}),
      DO("logsumexp", logsumexp(x[0]), {{0, -kInf}}, {{1, 0}}),
      DO("logsumexp of ties", logsumexp(x[0]), {{7, 7}}, {{0.5, 0.5}}),
      DO("cumsum", cumsum(x[0], 0), {{kInf, 0, kNaN}}, {{3, 2, 1}}),
      DO("cumprod with a 0", cumprod(x[0], 0), {{2, 0, 3}}, {{1, 8, 0}}),
      DO("cummax of ties", cummax(x[0], 0).values, {{1, 3, 3}}, {{1, 1, 1}}),
      DO("normalize", normalize(x[0], 2, 0), {{0, 1}}, {{1, 0}}),
  };
  expect_all(kCases);
}

TEST(SingularGradient, EmptyTensorsHaveEmptyGradients) {
  const std::vector<Column> none(1);
  const SingularCase kCases[] = {
      ONE(atan, none, none),
      DO("sum", sum(x[0]), none, none),
      DO("mean", mean(x[0]), none, none),
      DO("prod", prod(x[0]), none, none),
      DO("var", var(x[0]), none, none),
      DO("std", tandem::std(x[0]), none, none),
      DO("norm", norm(x[0]), none, none),
      DO("0.5-norm", norm(x[0], 0.5), none, none),
      DO("logsumexp", logsumexp(x[0]), none, none),
      DO("cumsum", cumsum(x[0], 0), none, none),
      DO("cumprod", cumprod(x[0], 0), none, none),
      DO("logcumsumexp", logcumsumexp(x[0], 0), none, none),
      DO("cummax", cummax(x[0], 0).values, none, none),
      DO("softmax", softmax(x[0], 0), none, none),
  };
  expect_all(kCases);
}

#undef ONE
#undef TWO
#undef DO

}  // namespace
}  // namespace tandem::singular
