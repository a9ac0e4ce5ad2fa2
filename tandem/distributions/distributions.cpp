// SPDX-License-Identifier: Apache-2.0
// Densities, moments and draws of the distributions of one variable per element.
#include "tandem/distributions/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

using namespace detail;

namespace {

constexpr double kPi = std::numbers::pi, kEuler = std::numbers::egamma;
constexpr double kLogRootTwoPi = 0.91893853320467274178, kRootHalf = 0.70710678118654752440;

// Uniform in [tiny, 1 - epsilon]: avoids the logarithm of 0.
Tensor open_uniform(const Shape& shape, DType dtype) {
  const double epsilon = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  return clamp(tandem::rand(shape, dtype), epsilon, 1 - epsilon);
}
Tensor draws_like(const Tensor& x, const Shape& s) { return open_uniform(s, x.dtype()); }
// A vector [k] as [k, 1, ..., 1], for broadcasting against x.
Tensor along_front(const Tensor& v, const Tensor& x) {
  Shape s{v.size(0)};
  for (int d = 0; d < x.dim(); ++d) s.push_back(1);
  return v.reshape(s);
}
Tensor nothing_like(const Tensor& x, double v) { return full_like(x, v); }

}  // namespace

// ---- the base

void Distribution::has_no(const char* what) const {
  TD_CHECK(false, Unsupported, "{} has no {}", name(), what);
  throw 0;  // not reached
}
Shape Distribution::extended(const Shape& shape) const {
  Shape s = shape;
  for (Dim d : batch_) s.push_back(d);
  for (Dim d : event_) s.push_back(d);
  return s;
}
Tensor Distribution::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return rsample(shape);
}
Tensor Distribution::rsample(const Shape&) const {
  has_no("rsample: its draws have no derivative");
}
Tensor Distribution::log_prob(const Tensor&) const { has_no("log_prob"); }
Tensor Distribution::cdf(const Tensor&) const { has_no("cdf"); }
Tensor Distribution::icdf(const Tensor&) const { has_no("icdf"); }
Tensor Distribution::entropy() const { has_no("entropy"); }
Tensor Distribution::mean() const { has_no("mean"); }
Tensor Distribution::variance() const { has_no("variance"); }
Tensor Distribution::stddev() const { return sqrt(variance()); }

#define TD_TWO(Type, a, b)                                  \
  const char* Type::name() const { return #Type; }          \
  Type::Type(const Operand& first, const Operand& second) { \
    broadcast_parameters({&first, &second}, {&a, &b});      \
    batch_ = a.shape();

// ---- Normal, LogNormal

TD_TWO(Normal, loc, scale)
require("Normal", "scale must be positive", scale > 0);
}
Tensor Normal::rsample(const Shape& shape) const {
  return loc + scale * randn(extended(shape), loc.dtype());
}
Tensor Normal::log_prob(const Tensor& value) const {
  return -square((value - loc) / scale) * 0.5 - log(scale) - kLogRootTwoPi;
}
Tensor Normal::cdf(const Tensor& value) const {
  return 0.5 * erfc((loc - value) / scale * kRootHalf);
}
Tensor Normal::icdf(const Tensor& value) const {
  return loc + scale * erfinv(2.0 * value - 1.0) / kRootHalf;
}
Tensor Normal::entropy() const { return 0.5 + kLogRootTwoPi + log(scale); }
Tensor Normal::mean() const { return loc; }
Tensor Normal::variance() const { return square(scale); }

TD_TWO(LogNormal, loc, scale)
require("LogNormal", "scale must be positive", scale > 0);
}
Tensor LogNormal::rsample(const Shape& shape) const {
  return exp(Normal(loc, scale).rsample(shape));
}
Tensor LogNormal::log_prob(const Tensor& value) const {
  const Tensor l = log(value);
  return Normal(loc, scale).log_prob(l) - l;
}
Tensor LogNormal::cdf(const Tensor& value) const { return Normal(loc, scale).cdf(log(value)); }
Tensor LogNormal::icdf(const Tensor& value) const { return exp(Normal(loc, scale).icdf(value)); }
Tensor LogNormal::entropy() const { return Normal(loc, scale).entropy() + loc; }
Tensor LogNormal::mean() const { return exp(loc + square(scale) * 0.5); }
Tensor LogNormal::variance() const {
  const Tensor s = square(scale);
  return expm1(s) * exp(2.0 * loc + s);
}

// ---- Uniform, Exponential

TD_TWO(Uniform, low, high)
require("Uniform", "low must be below high", low < high);
}
Tensor Uniform::rsample(const Shape& shape) const {
  return low + (high - low) * tandem::rand(extended(shape), low.dtype());
}
Tensor Uniform::log_prob(const Tensor& value) const {
  const Tensor inside = logical_and(value >= low, value < high);
  return where(inside, -log(high - low), -HUGE_VAL);
}
Tensor Uniform::cdf(const Tensor& value) const {
  return clamp((value - low) / (high - low), 0.0, 1.0);
}
Tensor Uniform::icdf(const Tensor& value) const { return low + (high - low) * value; }
Tensor Uniform::entropy() const { return log(high - low); }
Tensor Uniform::mean() const { return (low + high) * 0.5; }
Tensor Uniform::variance() const { return square(high - low) / 12.0; }

const char* Exponential::name() const { return "Exponential"; }
Exponential::Exponential(const Operand& r) {
  broadcast_parameters({&r}, {&rate});
  batch_ = rate.shape();
  require("Exponential", "rate must be positive", rate > 0);
}
Tensor Exponential::rsample(const Shape& shape) const {
  return -log(draws_like(rate, extended(shape))) / rate;
}
Tensor Exponential::log_prob(const Tensor& value) const { return log(rate) - rate * value; }
Tensor Exponential::cdf(const Tensor& value) const { return -expm1(-rate * value); }
Tensor Exponential::icdf(const Tensor& value) const { return -log1p(-value) / rate; }
Tensor Exponential::entropy() const { return 1.0 - log(rate); }
Tensor Exponential::mean() const { return reciprocal(rate); }
Tensor Exponential::variance() const { return reciprocal(square(rate)); }

// ---- Laplace, Gumbel, Cauchy: draws by the inverse of the distribution function

TD_TWO(Laplace, loc, scale)
require("Laplace", "scale must be positive", scale > 0);
}
Tensor Laplace::rsample(const Shape& shape) const { return icdf(draws_like(loc, extended(shape))); }
Tensor Laplace::log_prob(const Tensor& value) const {
  return -log(2.0 * scale) - abs(value - loc) / scale;
}
Tensor Laplace::cdf(const Tensor& value) const {
  const Tensor d = value - loc;
  return 0.5 - 0.5 * sign(d) * expm1(-abs(d) / scale);
}
Tensor Laplace::icdf(const Tensor& value) const {
  const Tensor t = value - 0.5;
  return loc - scale * sign(t) * log1p(-2.0 * abs(t));
}
Tensor Laplace::entropy() const { return 1.0 + log(2.0 * scale); }
Tensor Laplace::mean() const { return loc; }
Tensor Laplace::variance() const { return 2.0 * square(scale); }

TD_TWO(Gumbel, loc, scale)
require("Gumbel", "scale must be positive", scale > 0);
}
Tensor Gumbel::rsample(const Shape& shape) const { return icdf(draws_like(loc, extended(shape))); }
Tensor Gumbel::log_prob(const Tensor& value) const {
  const Tensor y = (loc - value) / scale;
  return y - exp(y) - log(scale);
}
Tensor Gumbel::cdf(const Tensor& value) const { return exp(-exp((loc - value) / scale)); }
Tensor Gumbel::icdf(const Tensor& value) const { return loc - scale * log(-log(value)); }
Tensor Gumbel::entropy() const { return log(scale) + (1 + kEuler); }
Tensor Gumbel::mean() const { return loc + scale * kEuler; }
Tensor Gumbel::variance() const { return square(scale) * (kPi * kPi / 6); }

TD_TWO(Cauchy, loc, scale)
require("Cauchy", "scale must be positive", scale > 0);
}
Tensor Cauchy::rsample(const Shape& shape) const { return icdf(draws_like(loc, extended(shape))); }
Tensor Cauchy::log_prob(const Tensor& value) const {
  return -std::log(kPi) - log(scale) - log1p(square((value - loc) / scale));
}
Tensor Cauchy::cdf(const Tensor& value) const { return atan((value - loc) / scale) / kPi + 0.5; }
Tensor Cauchy::icdf(const Tensor& value) const { return loc + scale * tan(kPi * (value - 0.5)); }
Tensor Cauchy::entropy() const { return std::log(4 * kPi) + log(scale); }
Tensor Cauchy::mean() const { return nothing_like(loc, std::nan("")); }
Tensor Cauchy::variance() const { return nothing_like(loc, HUGE_VAL); }

// ---- Gamma, Beta, StudentT

TD_TWO(Gamma, concentration, rate)
require("Gamma", "concentration and rate must be positive",
        logical_and(concentration > 0, rate > 0));
}
Tensor Gamma::rsample(const Shape& shape) const {
  return sample_gamma(expand(concentration, extended(shape))) / rate;
}
Tensor Gamma::log_prob(const Tensor& value) const {
  return xlogy(concentration, rate) + xlogy(concentration - 1.0, value) - rate * value -
         lgamma(concentration);
}
Tensor Gamma::entropy() const {
  return concentration - log(rate) + lgamma(concentration) +
         (1.0 - concentration) * digamma(concentration);
}
Tensor Gamma::mean() const { return concentration / rate; }
Tensor Gamma::variance() const { return concentration / square(rate); }

TD_TWO(Beta, concentration1, concentration0)
require("Beta", "concentrations must be positive",
        logical_and(concentration1 > 0, concentration0 > 0));
}
Tensor Beta::rsample(const Shape& shape) const {
  const Shape s = extended(shape);
  const Tensor a = sample_gamma(expand(concentration1, s)),
               b = sample_gamma(expand(concentration0, s));
  return a / (a + b);
}
Tensor Beta::log_prob(const Tensor& value) const {
  return xlogy(concentration1 - 1.0, value) + xlogy(concentration0 - 1.0, 1.0 - value) +
         lgamma(concentration1 + concentration0) - lgamma(concentration1) - lgamma(concentration0);
}
Tensor Beta::entropy() const {
  const Tensor sum = concentration1 + concentration0;
  return lgamma(concentration1) + lgamma(concentration0) - lgamma(sum) -
         (concentration1 - 1.0) * digamma(concentration1) -
         (concentration0 - 1.0) * digamma(concentration0) + (sum - 2.0) * digamma(sum);
}
Tensor Beta::mean() const { return concentration1 / (concentration1 + concentration0); }
Tensor Beta::variance() const {
  const Tensor sum = concentration1 + concentration0;
  return concentration1 * concentration0 / (square(sum) * (sum + 1.0));
}

const char* StudentT::name() const { return "StudentT"; }
StudentT::StudentT(const Operand& d, const Operand& l, const Operand& s) {
  broadcast_parameters({&d, &l, &s}, {&df, &loc, &scale});
  batch_ = df.shape();
  require("StudentT", "df and scale must be positive", logical_and(df > 0, scale > 0));
}
Tensor StudentT::rsample(const Shape& shape) const {
  const Shape s = extended(shape);
  const Tensor z = sample_gamma(expand(df * 0.5, s)) * 2.0;
  return loc + scale * randn(s, loc.dtype()) * rsqrt(z / df);
}
Tensor StudentT::log_prob(const Tensor& value) const {
  const Tensor y = (value - loc) / scale;
  return -0.5 * (df + 1.0) * log1p(square(y) / df) - log(scale) - 0.5 * log(df) -
         0.5 * std::log(kPi) - lgamma(0.5 * df) + lgamma(0.5 * (df + 1.0));
}
Tensor StudentT::entropy() const {
  const Tensor half = 0.5 * (df + 1.0), lower = 0.5 * df;
  return log(scale) + half * (digamma(half) - digamma(lower)) + 0.5 * log(df) + lgamma(lower) +
         0.5 * std::log(kPi) - lgamma(half);
}
Tensor StudentT::mean() const { return where(df > 1, loc, std::nan("")); }
Tensor StudentT::variance() const {
  const Tensor usual = square(scale) * df / where(df > 2, df - 2.0, 1.0);
  return where(df > 2, usual, where(df > 1, HUGE_VAL, full_like(df, std::nan(""))));
}

// ---- Bernoulli, Geometric, Poisson, Binomial

const char* Bernoulli::name() const { return "Bernoulli"; }
Bernoulli::Bernoulli(const Chances& p) {
  chances("Bernoulli", p, true, probs, logits);
  batch_ = probs.shape();
}
Tensor Bernoulli::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return bernoulli(expand(probs, extended(shape)));
}
Tensor Bernoulli::log_prob(const Tensor& value) const { return -logistic_loss(logits, value); }
Tensor Bernoulli::entropy() const { return logistic_loss(logits, probs); }
Tensor Bernoulli::mean() const { return probs; }
Tensor Bernoulli::variance() const { return probs * (1.0 - probs); }

const char* Geometric::name() const { return "Geometric"; }
Geometric::Geometric(const Chances& p) {
  chances("Geometric", p, true, probs, logits);
  batch_ = probs.shape();
  require("Geometric", "probs must be positive", probs > 0);
}
Tensor Geometric::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return floor(log(draws_like(probs, extended(shape))) / log1p(-probs));
}
Tensor Geometric::log_prob(const Tensor& value) const {
  return xlogy(value, 1.0 - probs) + log(probs);
}
Tensor Geometric::entropy() const { return logistic_loss(logits, probs) / probs; }
Tensor Geometric::mean() const { return reciprocal(probs) - 1.0; }
Tensor Geometric::variance() const { return (reciprocal(probs) - 1.0) / probs; }

const char* Poisson::name() const { return "Poisson"; }
Poisson::Poisson(const Operand& r) {
  broadcast_parameters({&r}, {&rate});
  batch_ = rate.shape();
  require("Poisson", "rate must not be negative", rate >= 0);
}
Tensor Poisson::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return poisson(expand(rate, extended(shape)));
}
Tensor Poisson::log_prob(const Tensor& value) const {
  return xlogy(value, rate) - rate - lgamma(value + 1.0);
}
// Sums over the values up to a rate of 100; above it, the series in 1 / rate (Evans and Boersma,
// 1988), which is accurate to 1e-13 there.
Tensor Poisson::entropy() const {
  constexpr double kEdge = 100;
  constexpr int64_t kValues = 300;  // the mass above is 1e-55 at the edge
  const Tensor low = clamp_max(rate, kEdge), r = reciprocal(clamp_min(rate, kEdge));
  const Tensor k = along_front(arange(kValues, rate.dtype()), rate);
  const Tensor lp = clamp_min(xlogy(k, low) - low - lgamma(k + 1.0), -700.0);
  const Tensor series =
      r * (1.0 / 12 +
           r * (1.0 / 24 +
                r * (19.0 / 360 + r * (9.0 / 80 + r * (863.0 / 2520 + r * (1375.0 / 1008))))));
  return where(rate < kEdge, -sum(exp(lp) * lp, {0}), 0.5 + kLogRootTwoPi - 0.5 * log(r) - series);
}
Tensor Poisson::mean() const { return rate; }
Tensor Poisson::variance() const { return rate; }

const char* Binomial::name() const { return "Binomial"; }
Binomial::Binomial(const Operand& n, const Chances& p) {
  chances("Binomial", p, true, probs, logits);
  const Operand operand(probs);
  broadcast_parameters({&n, &operand}, {&total_count, &probs});
  logits = expand(logits, probs.shape());
  batch_ = probs.shape();
  require("Binomial", "total_count must not be negative", total_count >= 0);
}
Tensor Binomial::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  const Shape s = extended(shape);
  return binomial(expand(total_count, s), expand(probs, s));
}
Tensor Binomial::log_prob(const Tensor& value) const {
  return lgamma(total_count + 1.0) - lgamma(value + 1.0) - lgamma(total_count - value + 1.0) +
         value * logits - total_count * softplus(logits, 1.0, 1e300);
}
// The sum over 0 .. the largest count; counts may differ between elements.
Tensor Binomial::entropy() const {
  if (total_count.numel() == 0) return zeros_like(probs);
  const double most = amax(total_count.detach()).item<double>();
  TD_CHECK(most <= 1e6, Unsupported, "entropy of a Binomial with a count of {}: at most 1e6", most);
  const Tensor k = along_front(arange(static_cast<int64_t>(most) + 1, probs.dtype()), probs);
  const Tensor lp = log_prob(minimum(k, total_count));
  return -sum(where(k <= total_count, exp(lp) * lp, 0.0), {0});
}
Tensor Binomial::mean() const { return total_count * probs; }
Tensor Binomial::variance() const { return total_count * probs * (1.0 - probs); }

}  // namespace tandem::distributions
