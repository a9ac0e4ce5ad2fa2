// SPDX-License-Identifier: Apache-2.0
// Distributions of single numbers (families.h).
#include "tandem/distributions/families.h"

#include <cmath>
#include <numbers>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

using namespace detail;

namespace {

constexpr double kCircle = 2 * std::numbers::pi;

Tensor uniform_of(const Tensor& x, const Shape& shape) { return tandem::rand(shape, x.dtype()); }
// Where the condition fails, NaN or another number.
Tensor valid(const Tensor& condition, const Tensor& y, double otherwise) {
  return where(condition, y, otherwise);
}

}  // namespace

#define TD_NAME(Type) \
  const char* Type::name() const { return #Type; }

// ---- halves

Folded::Folded(std::shared_ptr<const Distribution> whole) : whole_(std::move(whole)) {
  batch_ = whole_->batch_shape();
}
Tensor Folded::rsample(const Shape& shape) const { return abs(whole_->rsample(shape)); }
Tensor Folded::log_prob(const Tensor& value) const {
  return valid(value >= 0, whole_->log_prob(value) + std::log(2.0), -HUGE_VAL);
}
Tensor Folded::cdf(const Tensor& value) const { return 2.0 * whole_->cdf(value) - 1.0; }
Tensor Folded::icdf(const Tensor& value) const { return whole_->icdf((value + 1.0) * 0.5); }
Tensor Folded::entropy() const { return whole_->entropy() - std::log(2.0); }

namespace {
Tensor positive_scale(const char* name, const Operand& s) {
  Tensor scale;
  broadcast_parameters({&s}, {&scale});
  require(name, "scale must be positive", scale > 0);
  return scale;
}
}  // namespace

TD_NAME(HalfNormal)
HalfNormal::HalfNormal(const Operand& s)
    : Folded(std::make_shared<Normal>(0.0, positive_scale("HalfNormal", s))),
      scale(static_cast<const Normal&>(whole()).scale) {}
Tensor HalfNormal::mean() const { return scale * std::sqrt(2 / std::numbers::pi); }
Tensor HalfNormal::variance() const { return square(scale) * (1 - 2 / std::numbers::pi); }

TD_NAME(HalfCauchy)
HalfCauchy::HalfCauchy(const Operand& s)
    : Folded(std::make_shared<Cauchy>(0.0, positive_scale("HalfCauchy", s))),
      scale(static_cast<const Cauchy&>(whole()).scale) {}
Tensor HalfCauchy::mean() const { return full_like(scale, HUGE_VAL); }
Tensor HalfCauchy::variance() const { return full_like(scale, HUGE_VAL); }

// ---- of gamma variables

namespace {
Tensor halved(const Operand& df) {
  Tensor out;
  broadcast_parameters({&df}, {&out});
  return out * 0.5;
}
}  // namespace

TD_NAME(Chi2)
Chi2::Chi2(const Operand& d) : Gamma(halved(d), 0.5), df(concentration * 2.0) {}

TD_NAME(FisherSnedecor)
FisherSnedecor::FisherSnedecor(const Operand& a, const Operand& b) {
  broadcast_parameters({&a, &b}, {&df1, &df2});
  batch_ = df1.shape();
  require("FisherSnedecor", "df1 and df2 must be positive", logical_and(df1 > 0, df2 > 0));
}
Tensor FisherSnedecor::rsample(const Shape& shape) const {
  const Tensor a = Gamma(df1 * 0.5, df1 * 0.5).rsample(shape);
  const Tensor b = Gamma(df2 * 0.5, df2 * 0.5).rsample(shape);
  return a / clamp_min(b, 1e-37);
}
Tensor FisherSnedecor::log_prob(const Tensor& value) const {
  const Tensor a = df1 * 0.5, b = df2 * 0.5, ratio = df1 / df2;
  return lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(ratio) + (a - 1.0) * log(value) -
         (a + b) * log1p(ratio * value);
}
Tensor FisherSnedecor::mean() const {
  const Tensor ok = df2 > 2, d = where(ok, df2, 3.0);
  return valid(ok, d / (d - 2.0), std::nan(""));
}
Tensor FisherSnedecor::variance() const {
  const Tensor ok = df2 > 4, d = where(ok, df2, 5.0);
  return valid(ok, 2.0 * square(d) * (df1 + d - 2.0) / (df1 * square(d - 2.0) * (d - 4.0)),
               std::nan(""));
}

TD_NAME(InverseGamma)
InverseGamma::InverseGamma(const Operand& c, const Operand& r) {
  broadcast_parameters({&c, &r}, {&concentration, &rate});
  batch_ = concentration.shape();
  require("InverseGamma", "concentration and rate must be positive",
          logical_and(concentration > 0, rate > 0));
}
Tensor InverseGamma::rsample(const Shape& shape) const {
  return reciprocal(Gamma(concentration, rate).rsample(shape));
}
Tensor InverseGamma::log_prob(const Tensor& value) const {
  return concentration * log(rate) - lgamma(concentration) - (concentration + 1.0) * log(value) -
         rate / value;
}
Tensor InverseGamma::mean() const {
  const Tensor ok = concentration > 1;
  return valid(ok, rate / (where(ok, concentration, 2.0) - 1.0), HUGE_VAL);
}
Tensor InverseGamma::variance() const {
  const Tensor ok = concentration > 2, c = where(ok, concentration, 3.0);
  return valid(ok, square(rate) / (square(c - 1.0) * (c - 2.0)), HUGE_VAL);
}
Tensor InverseGamma::entropy() const {
  return concentration + log(rate) + lgamma(concentration) -
         (1.0 + concentration) * digamma(concentration);
}

// ---- tails

TD_NAME(Pareto)
Pareto::Pareto(const Operand& s, const Operand& a) {
  broadcast_parameters({&s, &a}, {&scale, &alpha});
  batch_ = scale.shape();
  require("Pareto", "scale and alpha must be positive", logical_and(scale > 0, alpha > 0));
}
Tensor Pareto::rsample(const Shape& shape) const {
  return scale * exp(Exponential(alpha).rsample(shape));
}
Tensor Pareto::log_prob(const Tensor& value) const {
  return log(alpha) + alpha * log(scale) - (alpha + 1.0) * log(value);
}
Tensor Pareto::cdf(const Tensor& value) const { return 1.0 - pow(scale / value, alpha); }
Tensor Pareto::icdf(const Tensor& value) const { return scale * pow(1.0 - value, -1.0 / alpha); }
Tensor Pareto::entropy() const { return log(scale / alpha) + 1.0 + 1.0 / alpha; }
Tensor Pareto::mean() const {
  const Tensor a = clamp_min(alpha, 1.0);
  return a * scale / (a - 1.0);
}
Tensor Pareto::variance() const {
  const Tensor a = clamp_min(alpha, 2.0);
  return square(scale) * a / (square(a - 1.0) * (a - 2.0));
}

TD_NAME(GeneralizedPareto)
GeneralizedPareto::GeneralizedPareto(const Operand& l, const Operand& s, const Operand& c) {
  broadcast_parameters({&l, &s, &c}, {&loc, &scale, &concentration});
  batch_ = loc.shape();
  require("GeneralizedPareto", "scale must be positive", scale > 0);
}
namespace {
// Is the concentration 0 (to 1e-8, as in PyTorch), and a divisor that never is.
struct Tail {
  Tensor exponential, safe;
};
Tail tail_of(const Tensor& concentration) {
  const Tensor zero = abs(concentration) <= 1e-8;
  return {zero, where(zero, 1.0, concentration)};
}
}  // namespace
Tensor GeneralizedPareto::rsample(const Shape& shape) const {
  return icdf(uniform_of(loc, extended(shape)));
}
Tensor GeneralizedPareto::log_prob(const Tensor& value) const {
  const Tensor z = (value - loc) / scale;
  const Tail t = tail_of(concentration);
  const Tensor y = 1.0 / t.safe + 1.0;
  return -log(scale) - where(t.exponential, z, where(y == 0, y, y * log1p(t.safe * z)));
}
Tensor GeneralizedPareto::cdf(const Tensor& value) const {
  const Tensor z = (value - loc) / scale;
  const Tail t = tail_of(concentration);
  return -expm1(where(t.exponential, -z, -log1p(t.safe * z) / t.safe));
}
Tensor GeneralizedPareto::icdf(const Tensor& value) const {
  const Tail t = tail_of(concentration);
  const Tensor left = log1p(-value);
  return where(t.exponential, loc - scale * left, loc + scale / t.safe * expm1(-t.safe * left));
}
Tensor GeneralizedPareto::entropy() const { return log(scale) + concentration + 1.0; }
Tensor GeneralizedPareto::mean() const {
  const Tensor ok = concentration < 1;
  return valid(ok, loc + scale / (1.0 - where(ok, concentration, 0.5)), std::nan(""));
}
Tensor GeneralizedPareto::variance() const {
  const Tensor ok = concentration < 0.5, c = where(ok, concentration, 0.25);
  return valid(ok, square(scale) / (square(1.0 - c) * (1.0 - 2.0 * c)), std::nan(""));
}

TD_NAME(Weibull)
Weibull::Weibull(const Operand& s, const Operand& c) {
  broadcast_parameters({&s, &c}, {&scale, &concentration});
  batch_ = scale.shape();
  require("Weibull", "scale and concentration must be positive",
          logical_and(scale > 0, concentration > 0));
}
Tensor Weibull::rsample(const Shape& shape) const {
  return scale * pow(Exponential(ones_like(scale)).rsample(shape), 1.0 / concentration);
}
Tensor Weibull::log_prob(const Tensor& value) const {
  const Tensor z = value / scale;
  return log(concentration / scale) + (concentration - 1.0) * log(z) - pow(z, concentration);
}
Tensor Weibull::cdf(const Tensor& value) const {
  return -expm1(-pow(value / scale, concentration));
}
Tensor Weibull::icdf(const Tensor& value) const {
  return scale * pow(-log1p(-value), 1.0 / concentration);
}
Tensor Weibull::entropy() const {
  return std::numbers::egamma * (1.0 - 1.0 / concentration) + log(scale / concentration) + 1.0;
}
Tensor Weibull::mean() const { return scale * exp(lgamma(1.0 + 1.0 / concentration)); }
Tensor Weibull::variance() const {
  const Tensor k = 1.0 / concentration;
  return square(scale) * (exp(lgamma(1.0 + 2.0 * k)) - exp(2.0 * lgamma(1.0 + k)));
}

// ---- on 0..1

TD_NAME(Kumaraswamy)
Kumaraswamy::Kumaraswamy(const Operand& a, const Operand& b) {
  broadcast_parameters({&a, &b}, {&concentration1, &concentration0});
  batch_ = concentration1.shape();
  require("Kumaraswamy", "concentrations must be positive",
          logical_and(concentration1 > 0, concentration0 > 0));
}
Tensor Kumaraswamy::rsample(const Shape& shape) const {
  const double e = concentration1.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
  return icdf(clamp(uniform_of(concentration1, extended(shape)), e, 1 - e));
}
Tensor Kumaraswamy::log_prob(const Tensor& value) const {
  const Tensor &a = concentration1, &b = concentration0;
  return log(a * b) + (a - 1.0) * log(value) + (b - 1.0) * log1p(-pow(value, a));
}
Tensor Kumaraswamy::cdf(const Tensor& value) const {
  return 1.0 - pow(1.0 - pow(value, concentration1), concentration0);
}
Tensor Kumaraswamy::icdf(const Tensor& value) const {
  return pow(1.0 - pow(1.0 - value, 1.0 / concentration0), 1.0 / concentration1);
}
namespace {
// The n-th moment: b B(1 + n / a, b).
Tensor moment(const Kumaraswamy& k, double n) {
  const Tensor a = 1.0 + n / k.concentration1, &b = k.concentration0;
  return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b));
}
}  // namespace
Tensor Kumaraswamy::mean() const { return moment(*this, 1); }
Tensor Kumaraswamy::variance() const { return moment(*this, 2) - square(mean()); }
Tensor Kumaraswamy::entropy() const {
  const Tensor &a = concentration1, &b = concentration0;
  const Tensor harmonic = digamma(b + 1.0) + std::numbers::egamma;
  return 1.0 - 1.0 / b + (1.0 - 1.0 / a) * harmonic - log(a) - log(b);
}

TD_NAME(ContinuousBernoulli)
ContinuousBernoulli::ContinuousBernoulli(const Chances& p, std::pair<double, double> l) : lims(l) {
  chances("ContinuousBernoulli", p, true, probs, logits);
  const double e = probs.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  probs = clamp(probs, e, 1 - e);
  batch_ = probs.shape();
}
Tensor ContinuousBernoulli::outside() const {
  return logical_or(probs <= lims.first, probs > lims.second);
}
Tensor ContinuousBernoulli::cut() const { return where(outside(), probs, lims.first); }
Tensor ContinuousBernoulli::log_norm() const {
  const Tensor c = cut(), below = c <= 0.5;
  const Tensor usual =
      log(abs(log1p(-c) - log(c))) -
      where(below, log1p(-2.0 * where(below, c, 0.0)), log(2.0 * where(below, 1.0, c) - 1.0));
  const Tensor x = square(probs - 0.5);
  return where(outside(), usual, std::log(2.0) + (4.0 / 3 + 104.0 / 45 * x) * x);
}
Tensor ContinuousBernoulli::rsample(const Shape& shape) const {
  return icdf(uniform_of(probs, extended(shape)));
}
Tensor ContinuousBernoulli::log_prob(const Tensor& value) const {
  return log_norm() - logistic_loss(logits, value);
}
Tensor ContinuousBernoulli::cdf(const Tensor& value) const {
  const Tensor c = cut();
  const Tensor usual = (pow(c, value) * pow(1.0 - c, 1.0 - value) + c - 1.0) / (2.0 * c - 1.0);
  const Tensor inside = where(outside(), usual, value);
  return where(value <= 0, 0.0, where(value >= 1, 1.0, inside));
}
Tensor ContinuousBernoulli::icdf(const Tensor& value) const {
  const Tensor c = cut();
  const Tensor usual = (log1p(-c + value * (2.0 * c - 1.0)) - log1p(-c)) / (log(c) - log1p(-c));
  return where(outside(), usual, value);
}
Tensor ContinuousBernoulli::entropy() const {
  const Tensor zero = log1p(-probs), one = log(probs);
  return mean() * (zero - one) - log_norm() - zero;
}
Tensor ContinuousBernoulli::mean() const {
  const Tensor c = cut(), x = probs - 0.5;
  return where(outside(), c / (2.0 * c - 1.0) + 1.0 / (log1p(-c) - log(c)),
               0.5 + (1.0 / 3 + 16.0 / 45 * square(x)) * x);
}
Tensor ContinuousBernoulli::variance() const {
  const Tensor c = cut(), x = square(probs - 0.5);
  return where(outside(), c * (c - 1.0) / square(1.0 - 2.0 * c) + 1.0 / square(log1p(-c) - log(c)),
               1.0 / 12 - (1.0 / 15 - 128.0 / 945 * x) * x);
}

// ---- counts, angles

TD_NAME(NegativeBinomial)
NegativeBinomial::NegativeBinomial(const Operand& n, const Chances& p) {
  chances("NegativeBinomial", p, true, probs, logits);
  const Operand one(probs), other(logits);
  broadcast_parameters({&n, &one, &other}, {&total_count, &probs, &logits});
  batch_ = probs.shape();
  require("NegativeBinomial", "total_count must not be negative", total_count >= 0);
  require("NegativeBinomial", "probs must be below 1", probs < 1);
}
Tensor NegativeBinomial::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return poisson(sample_gamma(expand(total_count, extended(shape))) * exp(logits));
}
Tensor NegativeBinomial::log_prob(const Tensor& value) const {
  const Tensor trials = total_count + value;
  const Tensor norm = lgamma(1.0 + value) + lgamma(total_count) - lgamma(trials);
  return total_count * logsigmoid(-logits) + value * logsigmoid(logits) -
         where(trials == 0, 0.0, norm);
}
Tensor NegativeBinomial::mean() const { return total_count * exp(logits); }
Tensor NegativeBinomial::variance() const { return mean() / sigmoid(-logits); }

TD_NAME(VonMises)
VonMises::VonMises(const Operand& l, const Operand& c) {
  broadcast_parameters({&l, &c}, {&loc, &concentration});
  batch_ = loc.shape();
  require("VonMises", "concentration must be positive", concentration > 0);
}
// By rejection from a wrapped Cauchy distribution (Best and Fisher, 1979). Reads values.
Tensor VonMises::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  const Shape s = extended(shape);
  const Tensor k = concentration.to(DType::f64);
  const Tensor tau = 1.0 + sqrt(1.0 + 4.0 * square(k));
  const Tensor rho = (tau - sqrt(2.0 * tau)) / (2.0 * k);
  const Tensor r = where(k < 1e-5, 1.0 / k + k, (1.0 + square(rho)) / (2.0 * rho));
  Tensor x = zeros(s, DType::f64), open = ones(s, DType::b8);
  while (any(open).item<bool>()) {
    const Tensor z = cos(std::numbers::pi * tandem::rand(s, DType::f64));
    const Tensor u = tandem::rand(s, DType::f64), side = tandem::rand(s, DType::f64);
    const Tensor f = (1.0 + r * z) / (r + z), c = k * (r - f);
    const Tensor accept = logical_or(c * (2.0 - c) - u > 0, log(c / u) + 1.0 - c >= 0);
    x = where(logical_and(open, accept), sign(side - 0.5) * acos(f), x);
    open = logical_and(open, logical_not(accept));
  }
  const Tensor turned = remainder(x + std::numbers::pi + loc.to(DType::f64), kCircle);
  return (turned - std::numbers::pi).to(loc.dtype());
}
Tensor VonMises::log_prob(const Tensor& value) const {
  return concentration * (cos(value - loc) - 1.0) - std::log(kCircle) - log(i0e(concentration));
}
Tensor VonMises::mean() const { return loc; }
Tensor VonMises::variance() const { return 1.0 - i1e(concentration) / i0e(concentration); }

#undef TD_NAME

}  // namespace tandem::distributions
