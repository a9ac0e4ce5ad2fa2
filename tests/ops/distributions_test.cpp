// SPDX-License-Identifier: Apache-2.0
// Distributions: draws against their distribution function (Kolmogorov and Smirnov) or their
// probabilities (chi squared), moments, derivatives of draws, error texts. Seeds are fixed and
// bounds are at odds of one in a million, so a wrong sampler fails and a right one never does.
#include "tandem/distributions/distributions.h"

#include <algorithm>
#include <cmath>

#include "tandem/distributions/families.h"
#include "tests/ops/values_helper.h"

namespace tandem::testing_ops {
namespace {

using namespace distributions;

constexpr int64_t kDraws = 20000;

class DistributionsTest : public OpsTest {
 protected:
  void SetUp() override { manual_seed(11); }
};

// The largest distance between the share of draws below x and the distribution function, times
// sqrt(n): above 2.7 once in a million.
template <class F>
void expect_follows(Values v, F&& cdf, const char* what) {
  std::sort(v.begin(), v.end());
  double largest = 0;
  const auto n = static_cast<double>(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const double f = cdf(v[i]);
    largest = std::max({largest, std::abs(f - static_cast<double>(i) / n),
                        std::abs(f - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(largest * std::sqrt(n), 2.7) << what;
}

// Mean and variance of n draws within 5 standard errors (that of the variance by the 4th moment).
void expect_moments(const Values& v, double mean, double variance, const char* what) {
  const auto n = static_cast<double>(v.size());
  double m = 0, s = 0, fourth = 0;
  for (double x : v) m += x / n;
  for (double x : v) {
    s += (x - mean) * (x - mean) / n;
    fourth += std::pow(x - mean, 4) / n;
  }
  EXPECT_NEAR(m, mean, 5 * std::sqrt(variance / n)) << what;
  EXPECT_NEAR(s, variance, 5 * std::sqrt(std::max(fourth - variance * variance, 1e-12) / n))
      << what;
}

// Counts of integers against probabilities; those expected fewer than 10 times are pooled.
void expect_counts(const Values& v, const Distribution& d, int64_t top, const char* what) {
  const Values logs = values(d.log_prob(arange(top).to(float64)));
  std::vector<double> seen(static_cast<size_t>(top) + 1);
  for (double x : v) {
    ASSERT_EQ(x, std::floor(x));
    ++seen[static_cast<size_t>(std::min(x, static_cast<double>(top)))];
  }
  const auto n = static_cast<double>(v.size());
  double rest = n, rest_seen = n, chi = 0, cells = 0;
  for (size_t k = 0; k < logs.size(); ++k) {
    const double want = n * std::exp(logs[k]);
    if (want < 10) continue;
    chi += (seen[k] - want) * (seen[k] - want) / want;
    rest -= want;
    rest_seen -= seen[k];
    ++cells;
  }
  if (rest >= 10) chi += (rest_seen - rest) * (rest_seen - rest) / rest, ++cells;
  ASSERT_GT(cells, 2);
  // Wilson and Hilferty's bound at 4.8 standard deviations.
  const double df = cells - 1, root = 1 - 2 / (9 * df) + 4.8 * std::sqrt(2 / (9 * df));
  EXPECT_LT(chi, df * root * root * root) << what;
}

// Draws against cdf, and cdf against icdf.
void expect_draws_follow(const Distribution& d) {
  const Tensor x = d.sample({kDraws}).to(float64);
  const Values f = values(d.cdf(x));
  expect_follows(
      f, [](double u) { return u; }, d.name());
  EXPECT_LT((d.icdf(d.cdf(x)) - x).abs().max().item<double>() / x.abs().max().item<double>(), 1e-3)
      << d.name();
}

TEST_F(DistributionsTest, DrawsFollowTheirDistributionFunction) {
  const Normal normal(1.0, 2.0);
  const LogNormal log_normal(0.2, 0.5);
  const distributions::Uniform uniform_(-1.0, 3.0);
  const Exponential exponential(0.7);
  const Laplace laplace(0.5, 1.5);
  const Gumbel gumbel(0.5, 1.5);
  const Cauchy cauchy(0.5, 1.5);
  for (const Distribution* d : std::initializer_list<const Distribution*>{
           &normal, &log_normal, &uniform_, &exponential, &laplace, &gumbel, &cauchy}) {
    expect_draws_follow(*d);
  }
  // A sampler whose mean is off by a tenth of a deviation is detected.
  Values shifted = values(Normal(1.2, 2.0).sample({kDraws}));
  std::sort(shifted.begin(), shifted.end());
  double largest = 0;
  for (size_t i = 0; i < shifted.size(); ++i)
    largest = std::max(largest, std::abs(0.5 * std::erfc((1 - shifted[i]) / 2 / std::sqrt(2.0)) -
                                         static_cast<double>(i) / kDraws));
  EXPECT_GT(largest * std::sqrt(static_cast<double>(kDraws)), 2.7);
}

// The families of families.h: by distribution function, by probabilities, or by moments.
TEST_F(DistributionsTest, DrawsOfTheOtherFamilies) {
  const Tensor one = ones({}, float64);
  const HalfNormal half_normal(one * 1.5);
  const HalfCauchy half_cauchy(one * 1.5);
  const Pareto pareto(one * 0.5, one * 3.0);
  const GeneralizedPareto tail(one * 0.5, one * 2.0, one * -0.3), exponential(one, one, one * 0.0);
  const Weibull weibull(one * 2.0, one * 1.4);
  const Kumaraswamy kumaraswamy(one * 0.7, one * 2.0);
  const ContinuousBernoulli continuous({.probs = one * 0.8}), even({.probs = one * 0.5});
  const TransformedDistribution falling(
      std::make_shared<Normal>(one * 0.0, one),
      {std::make_shared<AffineTransform>(1.0, -2.0), std::make_shared<SoftplusTransform>()});
  for (const Distribution* d : std::initializer_list<const Distribution*>{
           &half_normal, &half_cauchy, &pareto, &tail, &exponential, &weibull, &kumaraswamy,
           &continuous, &even, &falling})
    expect_draws_follow(*d);
  expect_counts(values(NegativeBinomial(one * 3.5, {.probs = one * 0.4}).sample({kDraws})),
                NegativeBinomial(one * 3.5, {.probs = one * 0.4}), 60, "negative binomial");
  const Chi2 chi2(one * 5.0);
  const InverseGamma inverse_gamma(one * 9.0, one * 2.0);
  const FisherSnedecor fisher(one * 4.0, one * 14.0);
  const MixtureSameFamily mixture(Categorical({.probs = tensor({0.3, 0.7}, float64)}),
                                  std::make_shared<Normal>(tensor({-1.0, 2.0}, float64), one));
  for (const Distribution* d :
       std::initializer_list<const Distribution*>{&chi2, &inverse_gamma, &fisher, &mixture})
    expect_moments(values(d->sample({kDraws})), d->mean().item<double>(),
                   d->variance().item<double>(), d->name());
  // The mean resultant of angles around loc is 1 - the circular variance.
  const VonMises angles(one * 0.5, one * 2.0);
  const Tensor a = angles.sample({kDraws}) - 0.5;
  EXPECT_NEAR(cos(a).mean().item<double>(), 1 - angles.variance().item<double>(), 0.02);
  EXPECT_NEAR(sin(a).mean().item<double>(), 0, 0.02);
}

TEST_F(DistributionsTest, DrawsOfChoicesAndMatrices) {
  const Tensor p = tensor({0.2, 0.5, 0.3}, float64);
  const OneHotCategoricalStraightThrough choice({.probs = p});
  EXPECT_LT((choice.sample({kDraws}).mean({0}) - p).abs().max().item<double>(), 0.02);
  Tensor logits = zeros({3}, float64).requires_grad_();
  const OneHotCategoricalStraightThrough straight({.logits = logits});
  (straight.rsample({5}) * tensor({1.0, 2.0, 3.0}, float64)).sum().backward();
  EXPECT_LT((logits.grad() - tensor({-5.0, 0.0, 5.0}, float64) / 3).abs().max().item<double>(),
            1e-12);
  // A relaxed draw is above one half, or the largest, as often as the choice is made.
  const RelaxedBernoulli soft(0.5, {.probs = tensor({0.3}, float64)});
  EXPECT_NEAR((soft.sample({kDraws}) > 0.5).to(float64).mean().item<double>(), 0.3, 0.02);
  const RelaxedOneHotCategorical softer(0.7, {.probs = p});
  EXPECT_LT((one_hot(softer.sample({kDraws}).argmax(-1), 3).to(float64).mean({0}) - p)
                .abs()
                .max()
                .item<double>(),
            0.02);
  const LogisticNormal simplex(zeros({3}, float64), 0.5);
  EXPECT_LT((simplex.sample({10}).sum({-1}) - 1.0).abs().max().item<double>(), 1e-12);
  const Tensor cov = tensor({{2., 0.6}, {0.6, 1.}}, float64);
  const Wishart wishart(5.0, {.covariance_matrix = cov});
  const Tensor seen = wishart.sample({kDraws}).mean({0});
  EXPECT_LT((seen - wishart.mean()).abs().max().item<double>(), 0.3);
  const LowRankMultivariateNormal low(zeros({3}, float64), tensor({{1.}, {0.5}, {-1.}}, float64),
                                      p);
  EXPECT_LT(
      (tandem::cov(low.sample({kDraws}).t()) - low.covariance_matrix()).abs().max().item<double>(),
      0.1);
  // With concentration 1 a correlation of two variables is uniform in -1..1.
  const LKJCholesky lkj(2, ones({}, float64));
  const Tensor r = lkj.sample({kDraws});
  EXPECT_LT((r.square().sum({-1}) - 1.0).abs().max().item<double>(), 1e-12);
  expect_follows(
      values(r.select(-2, 1).select(-1, 0)), [](double u) { return (u + 1) / 2; }, "LKJ");
}

TEST_F(DistributionsTest, FormulasOfUsers) {
  const Cauchy p(0.0, 1.0), q(1.0, 1.0);
  expect_error(ErrorKind::Unsupported, "no formula for Cauchy and Cauchy",
               [&] { kl_divergence(p, q); });
  // F. Chyzak and F. Nielsen, 2019.
  register_kl("Cauchy", "Cauchy", [](const Distribution& a, const Distribution& b) {
    const auto &x = dynamic_cast<const Cauchy&>(a), &y = dynamic_cast<const Cauchy&>(b);
    return log((square(x.scale + y.scale) + square(x.loc - y.loc)) / (4.0 * x.scale * y.scale));
  });
  EXPECT_NEAR(kl_divergence(p, q).item<float>(), std::log(1.25), 1e-6);
  expect_error(ErrorKind::Shape, "must have as large a batch", [] {
    TransformedDistribution(std::make_shared<Normal>(0.0, 1.0),
                            {std::make_shared<AffineTransform>(zeros({3}), 1.0)});
  });
}

// P(a, x) for a = k or k + 1/2 in closed form by recurrence.
double gamma_cdf(double a, double x) {
  double p = a == std::floor(a) ? 1 - std::exp(-x) : std::erf(std::sqrt(x));
  double b = a == std::floor(a) ? 1 : 0.5;
  for (; b < a - 0.25; ++b) p -= std::exp(b * std::log(x) - x - std::lgamma(b + 1));
  return p;
}

TEST_F(DistributionsTest, GammaAndItsKin) {
  for (double a : {0.5, 1.0, 2.5, 9.0, 60.5}) {
    const Values v = values(sample_gamma(full({kDraws}, a, float64)));
    expect_follows(
        v, [&](double x) { return gamma_cdf(a, x); }, "gamma");
    expect_moments(v, a, a, "gamma");
  }
  expect_moments(values(Gamma(0.05, 2.0).sample({kDraws})), 0.025, 0.0125, "small gamma");
  for (const auto& [a, b] : {std::pair(0.5, 0.5), std::pair(2.0, 5.0)}) {
    const Beta d(a, b);
    expect_moments(values(d.sample({kDraws})), d.mean().item<float>(), d.variance().item<float>(),
                   "beta");
  }
  expect_follows(
      values(Beta(0.5, 0.5).sample({kDraws})),
      [](double x) { return 2 / 3.14159265358979 * std::asin(std::sqrt(x)); }, "arcsine");
  const StudentT t(5.0, 1.0, 2.0);
  expect_moments(values(t.sample({kDraws})), 1, 4 * 5 / 3.0, "student");
  const Dirichlet dirichlet(tensor({0.5f, 1.f, 3.f}));
  const Tensor p = dirichlet.sample({kDraws});
  for (int i = 0; i < 3; ++i)
    expect_moments(values(p.select(-1, i)), dirichlet.mean()[i].item<float>(),
                   dirichlet.variance()[i].item<float>(), "dirichlet");
  EXPECT_LT((p.sum({-1}) - 1.0).abs().max().item<float>(), 1e-5);
}

TEST_F(DistributionsTest, WholeNumbers) {
  for (double rate : {0.3, 4.0, 9.9, 10.5, 200.0}) {
    const distributions::Poisson d(full({}, rate, float64));
    const Values v = values(d.sample({kDraws}));
    expect_counts(v, d, 400, "poisson");
    expect_moments(v, rate, rate, "poisson");
  }
  for (double n : {1.0, 12.0, 40.0, 300.0})
    for (double p : {0.02, 0.3, 0.5, 0.9}) {
      const Binomial d(full({}, n, float64), {.probs = full({}, p, float64)});
      const Values v = values(d.sample({kDraws}));
      expect_moments(v, n * p, n * p * (1 - p), "binomial");
      if (n > 1) expect_counts(v, d, static_cast<int64_t>(n) + 1, "binomial");
    }
  const Geometric g({.probs = full({}, 0.3, float64)});
  expect_counts(values(g.sample({kDraws})), g, 60, "geometric");
  expect_moments(values(Bernoulli({.logits = full({}, -0.5)}).sample({kDraws})),
                 1 / (1 + std::exp(0.5)), 0.2350037, "bernoulli");
  EXPECT_EQ(poisson(zeros({3})).sum().item<float>(), 0);
  EXPECT_EQ(values(binomial(full({2}, 5.0), tensor({0.f, 1.f}))), (Values{0, 5}));
}

// The entropy is the negative mean of log_prob over all values.
TEST_F(DistributionsTest, EntropyOfWholeNumbers) {
  auto expected = [](const distributions::Distribution& d, int64_t n, int at) {
    const Tensor k = arange(n, float64).reshape({n, 1}).expand({n, d.batch_shape()[0]});
    const Tensor lp = d.log_prob(k).select(1, at);
    return -sum(exp(lp) * lp).item<double>();
  };
  const Tensor rate = tensor({1e-3, 0.7, 5.0, 99.9, 100.1, 250.0}, float64);
  const distributions::Poisson p(rate);
  const Values got = values(p.entropy());
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(got[i], expected(p, 1200, i), 2e-12) << i;
  EXPECT_EQ(distributions::Poisson(zeros({1})).entropy().item<float>(), 0);
  const Binomial b(tensor({0.0, 1.0, 7.0, 40.0}, float64),
                   {.probs = tensor({0.3, 0.5, 0.2, 0.9}, float64)});
  const Values of_b = values(b.entropy());
  EXPECT_NEAR(of_b[0], 0, 1e-15);
  EXPECT_NEAR(of_b[1], std::log(2.0), 1e-14);
  for (int i = 2; i < 4; ++i) {
    const Binomial one(b.total_count.slice(0, i, i + 1), {.probs = b.probs.slice(0, i, i + 1)});
    EXPECT_NEAR(of_b[i], expected(one, i == 2 ? 8 : 41, 0), 1e-13) << i;
  }
}

TEST_F(DistributionsTest, CategoricalAndMultinomial) {
  const Tensor probs = tensor({{1.f, 2.f, 1.f}, {0.f, 1.f, 3.f}});
  const Categorical d({.probs = probs});
  const Tensor s = d.sample({kDraws});
  EXPECT_EQ(s.shape(), Shape(kDraws, 2));
  EXPECT_EQ(s.dtype(), int64);
  const Tensor share = one_hot(s, 3).to(float64).mean({0});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) {
      const double p = d.probs[i][j].item<float>();
      EXPECT_NEAR(share[i][j].item<double>(), p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9);
    }
  const distributions::Multinomial m(10, {.probs = probs});
  const Tensor counts = m.sample({2000});
  EXPECT_EQ(counts.shape(), Shape(2000, 2, 3));
  EXPECT_EQ(counts.sum({-1}).amin().item<float>(), 10);
  expect_moments(values(counts.select(1, 1).select(1, 2)), 7.5, 10 * 0.75 * 0.25, "multinomial");
}

TEST_F(DistributionsTest, ManyVariables) {
  const Tensor cov = tensor({{2., 0.6}, {0.6, 1.}}, float64), loc = tensor({1., -1.}, float64);
  const MultivariateNormal d(loc, {.covariance_matrix = cov});
  const Tensor x = d.sample({kDraws});
  const Tensor seen = tandem::cov(x.t());
  EXPECT_LT((seen - cov).abs().max().item<double>(), 0.1);
  EXPECT_LT((x.mean({0}) - loc).abs().max().item<double>(), 0.05);
  const MultivariateNormal same(loc, {.precision_matrix = linalg::inv(cov)});
  EXPECT_LT((same.covariance_matrix() - cov).abs().max().item<double>(), 1e-12);
  // Independent normals form one multivariate normal.
  const Tensor scale = tensor({0.5, 2.}, float64);
  const Independent parts(std::make_shared<Normal>(loc, scale), 1);
  const MultivariateNormal whole(loc, {.scale_tril = diag(scale)});
  EXPECT_EQ(parts.event_shape(), Shape(2));
  EXPECT_LT((parts.log_prob(x) - whole.log_prob(x)).abs().max().item<double>(), 1e-12);
  EXPECT_NEAR(parts.entropy().item<double>(), whole.entropy().item<double>(), 1e-12);
  const Independent other(std::make_shared<Normal>(loc * 2, scale * 2), 1);
  const MultivariateNormal other_whole(loc * 2, {.scale_tril = diag(scale * 2)});
  EXPECT_NEAR(kl_divergence(parts, other).item<double>(),
              kl_divergence(whole, other_whole).item<double>(), 1e-12);
}

// rsample moves with the parameters as the quantile does: d E[x^2] / d parameter.
TEST_F(DistributionsTest, DerivativesOfDraws) {
  const auto derivative = [&](auto make, double at) {
    const Tensor p = full({}, at, float64).requires_grad_();
    manual_seed(2);
    square(make(p).rsample({60000})).mean().backward();
    return p.grad().item<double>();
  };
  // E x^2 = a (a + 1): derivative 2 a + 1.
  EXPECT_NEAR(derivative([](const Tensor& a) { return Gamma(a, 1.0); }, 2.5), 6, 0.2);
  EXPECT_NEAR(derivative([](const Tensor& a) { return Gamma(a, 1.0); }, 0.4), 1.8, 0.15);
  // a (a + 1) / ((a + 2) (a + 3)) at b = 2.
  EXPECT_NEAR(derivative([](const Tensor& a) { return Beta(a, 2.0); }, 1.5), 0.133031, 0.004);
  EXPECT_NEAR(derivative([](const Tensor& s) { return Normal(1.0, s); }, 1.5), 3, 0.1);
  EXPECT_NEAR(derivative([](const Tensor& r) { return Exponential(r); }, 2.0), -0.5, 0.04);
  // The derivative of a quantile: F(a + h, z + derivative h) = F(a, z).
  for (double a : {1.0, 2.5, 9.0})
    for (double z : {0.2 * a, 0.9 * a, 1.5 * a, 3 * a}) {
      const double got = call(op::sample_gamma_backward, nullptr, SourceLocation::here(),
                              full({}, a, float64), full({}, z, float64))
                             .item<double>();
      const double f = std::exp((a - 1) * std::log(z) - z - std::lgamma(a));
      // dF/da by the power series, differences of which are exact enough.
      const auto series = [&](double b) {
        double term = std::exp(b * std::log(z) - z - std::lgamma(b + 1)), sum = 0;
        for (double k = 1; k < 500; ++k) sum += term, term *= z / (b + k);
        return sum;
      };
      const double h = 1e-4;
      EXPECT_NEAR(got, -(series(a + h) - series(a - h)) / (2 * h) / f, 1e-5 * (1 + got))
          << a << " " << z;
    }
  EXPECT_FALSE(Normal(full({}, 0.0).requires_grad_(), 1.0).sample({2}).requires_grad());
  const Tensor a = full({}, 2.0, float64).requires_grad_();
  const Tensor g = grad(sample_gamma(a), a, {.create_graph = true});
  expect_error(ErrorKind::Unsupported, "only have a first derivative", [&] { g.backward(); });
}

TEST_F(DistributionsTest, OneSeedOneDraw) {
  const Gamma d(full({50}, 0.7), 1.0);
  std::vector<Values> seen;
  for (int threads : {1, 2, 8}) {
    ThreadLimitGuard limit(threads);
    manual_seed(9);
    seen.push_back(values(d.sample({1000})));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_F(DistributionsTest, WrongParameters) {
  expect_error(ErrorKind::Value, "Normal: scale must be positive", [] { Normal(0.0, -1.0); });
  expect_error(ErrorKind::Value, "Uniform: low must be below high",
               [] { distributions::Uniform(1.0, 1.0); });
  expect_error(ErrorKind::Value, "either probs or logits", [] { Bernoulli({}); });
  expect_error(ErrorKind::Value, "probs must be in 0..1",
               [] { Bernoulli({.probs = full({}, 1.5)}); });
  expect_error(ErrorKind::Value, "Gamma: concentration and rate", [] { Gamma(0.0, 1.0); });
  expect_error(ErrorKind::Value, "expected one of covariance_matrix",
               [] { MultivariateNormal(zeros({2}), {}); });
  expect_error(ErrorKind::Shape, "loc is [2], the matrix [3, 3]",
               [] { MultivariateNormal(zeros({2}), {.scale_tril = eye(3)}); });
  expect_error(ErrorKind::Value, "batch dimensions",
               [] { Independent(std::make_shared<Normal>(0.0, 1.0), 1); });
  expect_error(ErrorKind::Unsupported, "Bernoulli has no rsample",
               [] { Bernoulli({.probs = full({}, 0.5)}).rsample(); });
  expect_error(ErrorKind::Unsupported, "Gamma has no cdf", [] { Gamma(1.0, 1.0).cdf(ones({})); });
  expect_error(ErrorKind::Unsupported, "no formula for Normal and Laplace",
               [] { kl_divergence(Normal(0.0, 1.0), Laplace(0.0, 1.0)); });
  expect_error(ErrorKind::Value, "concentration at element 1 is not positive", [] {
    sample_gamma(tensor({1.f, -1.f}));
  });
  expect_error(ErrorKind::Value, "rate at element 0 is negative", [] { poisson(tensor({-1.f})); });
  expect_error(ErrorKind::Value, "probability is not in 0..1",
               [] { binomial(ones({1}), full({1}, 2.0)); });
}

}  // namespace
}  // namespace tandem::testing_ops
