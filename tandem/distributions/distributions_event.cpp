// SPDX-License-Identifier: Apache-2.0
// Distributions whose event has dimensions, and the shared helpers (distributions_internal.h).
#include <cmath>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/distributions/families.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

namespace detail {

void broadcast_parameters(std::initializer_list<const Operand*> from,
                          std::initializer_list<Tensor*> to) {
  DType dtype = DType::f32;
  bool found = false;
  Shape shape;
  for (const Operand* p : from) {
    if (p->is_scalar()) continue;
    const Tensor& t = p->tensor();
    if (is_floating(t.dtype())) {
      dtype = found ? promote(dtype, t.dtype()) : t.dtype();
      found = true;
    }
    shape = broadcast_shapes(shape, t.shape());
  }
  auto out = to.begin();
  for (const Operand* p : from) {
    const Tensor t = p->is_scalar() ? full(Shape(), p->scalar(), dtype) : p->tensor().to(dtype);
    **out++ = expand(t, shape);
  }
}

void require(const char* name, const char* what, const Tensor& ok) {
  if (ok.is_symbolic()) return;
  NoGradGuard no_grad;
  TD_CHECK(all(ok).item<bool>(), Value, "{}: {}", name, what);
}

void chances(const char* name, const Chances& p, bool binary, Tensor& probs, Tensor& logits) {
  TD_CHECK(p.probs.defined() != p.logits.defined(), Value,
           "{}: expected either probs or logits\nWrite {}({{.probs = p}}).", name, name);
  const Tensor& given = p.probs.defined() ? p.probs : p.logits;
  TD_CHECK(is_floating(given.dtype()), DType, "{}: expected floating probs or logits, got {}", name,
           to_string(given.dtype()));
  const double epsilon = given.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  if (binary) {
    if (p.probs.defined()) {
      require(name, "probs must be in 0..1", logical_and(given >= 0, given <= 1));
      probs = given;
      logits = logit(given, epsilon);
    } else {
      logits = given;
      probs = sigmoid(given);
    }
    return;
  }
  TD_CHECK(given.dim() >= 1, Shape, "{}: expected at least one dimension", name);
  if (p.probs.defined()) {
    require(name, "probs must not be negative", given >= 0);
    probs = given / sum(given, {-1}, true);
    logits = log(clamp(probs, epsilon, 1 - epsilon));
  } else {
    logits = given - logsumexp(given, {-1}, true);
    probs = softmax(given, -1);
  }
}

Tensor logistic_loss(const Tensor& logits, const Tensor& value) {
  return -logsigmoid(-logits) - logits * value;
}

Tensor sum_last(const Tensor& x, int64_t n) {
  if (n == 0) return x;
  IntList dims;
  for (int64_t i = 1; i <= n; ++i) dims.push_back(-i);
  return sum(x, dims);
}

}  // namespace detail

using namespace detail;

namespace {
Shape without_last(const Shape& s, int n) {
  Shape out;
  for (int i = 0; i + n < s.rank(); ++i) out.push_back(s[i]);
  return out;
}
}  // namespace

// ---- Categorical, Multinomial

const char* Categorical::name() const { return "Categorical"; }
Categorical::Categorical(const Chances& p) {
  chances("Categorical", p, false, probs, logits);
  batch_ = without_last(probs.shape(), 1);
}
Tensor Categorical::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  const Dim k = probs.shape(-1);
  const Tensor rows = reshape(probs, Shape(-1, k));
  const int64_t n = shape.numel().value();
  if (n == 0 || rows.size(0) == 0) return zeros(extended(shape), DType::i64);
  const Tensor drawn = multinomial(rows, n, true);
  return reshape(transpose(drawn, 0, 1), extended(shape));
}
Tensor Categorical::log_prob(const Tensor& value) const {
  const Shape s = broadcast_shapes(value.shape(), batch_);
  Shape wide = s;
  wide.push_back(logits.shape(-1));
  const Tensor at = unsqueeze(expand(value.to(DType::i64), s), -1);
  return squeeze(gather(expand(logits, wide), -1, at), -1);
}
Tensor Categorical::entropy() const { return -sum(probs * clamp_min(logits, -1e30), {-1}); }
Tensor Categorical::mean() const { return full(batch_, std::nan(""), probs.dtype()); }
Tensor Categorical::variance() const { return mean(); }

const char* Multinomial::name() const { return "Multinomial"; }
Multinomial::Multinomial(int64_t n, const Chances& p) : total_count(n) {
  chances("Multinomial", p, false, probs, logits);
  TD_CHECK(n >= 0, Value, "Multinomial: total_count must not be negative, got {}", n);
  batch_ = without_last(probs.shape(), 1);
  event_ = Shape(probs.shape(-1));
}
Tensor Multinomial::sample(const Shape& shape) const {
  Shape s(total_count);
  for (Dim d : shape) s.push_back(d);
  const Tensor drawn = Categorical({.probs = probs}).sample(s);
  return sum(one_hot(drawn, probs.size(-1)), {0}).to(probs.dtype());
}
Tensor Multinomial::log_prob(const Tensor& value) const {
  const Tensor factor = lgamma(sum(value, {-1}) + 1.0) - sum(lgamma(value + 1.0), {-1});
  return factor + sum(where(value == 0, 0.0, value * logits), {-1});
}
Tensor Multinomial::mean() const { return probs * static_cast<double>(total_count); }
Tensor Multinomial::variance() const { return mean() * (1.0 - probs); }

// ---- Dirichlet

const char* Dirichlet::name() const { return "Dirichlet"; }
Dirichlet::Dirichlet(const Tensor& c) : concentration(c) {
  TD_CHECK(c.dim() >= 1, Shape, "Dirichlet: expected at least one dimension");
  require("Dirichlet", "concentration must be positive", c > 0);
  batch_ = without_last(c.shape(), 1);
  event_ = Shape(c.shape(-1));
}
Tensor Dirichlet::rsample(const Shape& shape) const {
  const Tensor g = sample_gamma(expand(concentration, extended(shape)));
  return g / sum(g, {-1}, true);
}
Tensor Dirichlet::log_prob(const Tensor& value) const {
  return sum(xlogy(concentration - 1.0, value), {-1}) + lgamma(sum(concentration, {-1})) -
         sum(lgamma(concentration), {-1});
}
Tensor Dirichlet::entropy() const {
  const Tensor total = sum(concentration, {-1});
  const auto k = static_cast<double>(concentration.size(-1));
  return sum(lgamma(concentration), {-1}) - lgamma(total) - (k - total) * digamma(total) -
         sum((concentration - 1.0) * digamma(concentration), {-1});
}
Tensor Dirichlet::mean() const { return concentration / sum(concentration, {-1}, true); }
Tensor Dirichlet::variance() const {
  const Tensor total = sum(concentration, {-1}, true);
  return concentration * (total - concentration) / (square(total) * (total + 1.0));
}

// ---- MultivariateNormal

namespace {
Tensor log_volume(const Tensor& tril) { return sum(log(diagonal(tril, 0, -2, -1)), {-1}); }
}  // namespace

const char* MultivariateNormal::name() const { return "MultivariateNormal"; }
MultivariateNormal::MultivariateNormal(const Tensor& l, const Covariance& c) {
  const int given =
      c.covariance_matrix.defined() + c.precision_matrix.defined() + c.scale_tril.defined();
  TD_CHECK(
      given == 1, Value,
      "MultivariateNormal: expected one of covariance_matrix, precision_matrix and scale_tril, "
      "got {}",
      given);
  TD_CHECK(l.dim() >= 1, Shape, "MultivariateNormal: loc must have a dimension");
  Tensor tril = c.scale_tril;
  if (c.covariance_matrix.defined()) tril = linalg::cholesky(c.covariance_matrix);
  if (c.precision_matrix.defined()) tril = linalg::cholesky(linalg::inv(c.precision_matrix));
  TD_CHECK(tril.dim() >= 2 && dims_equal(tril.shape(-1), l.shape(-1)) &&
               dims_equal(tril.shape(-2), l.shape(-1)),
           Shape, "MultivariateNormal: loc is {}, the matrix {}", l.shape().to_string(),
           tril.shape().to_string());
  batch_ = broadcast_shapes(without_last(l.shape(), 1), without_last(tril.shape(), 2));
  event_ = Shape(l.shape(-1));
  loc = expand(l, extended({}));
  Shape s = extended({});
  s.push_back(l.shape(-1));
  scale_tril = expand(tril, s);
}
Tensor MultivariateNormal::covariance_matrix() const {
  return matmul(scale_tril, scale_tril, MatmulAttrs{false, true});
}
Tensor MultivariateNormal::rsample(const Shape& shape) const {
  const Tensor z = randn(extended(shape), loc.dtype());
  return loc + squeeze(matmul(scale_tril, unsqueeze(z, -1)), -1);
}
Tensor MultivariateNormal::log_prob(const Tensor& value) const {
  const Tensor d = unsqueeze(value - loc, -1);
  const Tensor z = linalg::solve_triangular(scale_tril, d, false);
  const auto k = static_cast<double>(loc.size(-1));
  return -0.5 * (sum(square(z), {-2, -1}) + k * std::log(2 * 3.14159265358979323846)) -
         log_volume(scale_tril);
}
Tensor MultivariateNormal::entropy() const {
  const auto k = static_cast<double>(loc.size(-1));
  return 0.5 * k * (1 + std::log(2 * 3.14159265358979323846)) + log_volume(scale_tril);
}
Tensor MultivariateNormal::mean() const { return loc; }
Tensor MultivariateNormal::variance() const { return sum(square(scale_tril), {-1}); }

// ---- Independent

const char* Independent::name() const { return "Independent"; }
Independent::Independent(std::shared_ptr<const Distribution> base, int64_t n)
    : base_(std::move(base)), n_(n) {
  TD_CHECK(base_ != nullptr, Value, "Independent: expected a distribution");
  const Shape& b = base_->batch_shape();
  TD_CHECK(n >= 0 && n <= b.rank(), Value,
           "Independent: {} batch dimensions of {} cannot be reinterpreted", n, b.to_string());
  batch_ = without_last(b, static_cast<int>(n));
  for (int i = b.rank() - static_cast<int>(n); i < b.rank(); ++i) event_.push_back(b[i]);
  for (Dim d : base_->event_shape()) event_.push_back(d);
}
Tensor Independent::sample(const Shape& shape) const { return base_->sample(shape); }
Tensor Independent::rsample(const Shape& shape) const { return base_->rsample(shape); }
Tensor Independent::log_prob(const Tensor& value) const {
  return sum_last(base_->log_prob(value), n_);
}
Tensor Independent::entropy() const { return sum_last(base_->entropy(), n_); }
Tensor Independent::mean() const { return base_->mean(); }
Tensor Independent::variance() const { return base_->variance(); }

// ---- divergences

namespace {

Tensor kl(const Normal& p, const Normal& q) {
  const Tensor ratio = square(p.scale / q.scale), gap = square((p.loc - q.loc) / q.scale);
  return 0.5 * (ratio + gap - 1.0 - log(ratio));
}
Tensor kl(const LogNormal& p, const LogNormal& q) {
  return kl(Normal(p.loc, p.scale), Normal(q.loc, q.scale));
}
Tensor kl(const Uniform& p, const Uniform& q) {
  const Tensor outside = logical_or(q.low > p.low, q.high < p.high);
  return where(outside, HUGE_VAL, log((q.high - q.low) / (p.high - p.low)));
}
Tensor kl(const Exponential& p, const Exponential& q) {
  const Tensor ratio = q.rate / p.rate;
  return ratio - 1.0 - log(ratio);
}
Tensor kl(const Laplace& p, const Laplace& q) {
  const Tensor ratio = p.scale / q.scale, d = abs(p.loc - q.loc);
  return d / q.scale + ratio * exp(-d / p.scale) - log(ratio) - 1.0;
}
Tensor kl(const Gamma& p, const Gamma& q) {
  return q.concentration * log(p.rate / q.rate) + lgamma(q.concentration) -
         lgamma(p.concentration) + (p.concentration - q.concentration) * digamma(p.concentration) +
         (q.rate - p.rate) * (p.concentration / p.rate);
}
Tensor kl(const Dirichlet& p, const Dirichlet& q) {
  const Tensor &a = p.concentration, &b = q.concentration;
  const Tensor total = sum(a, {-1}, true);
  const Tensor rest = lgamma(b) - lgamma(a) + (a - b) * (digamma(a) - digamma(total));
  return lgamma(squeeze(total, -1)) - lgamma(sum(b, {-1})) + sum(rest, {-1});
}
Tensor kl(const Beta& p, const Beta& q) {
  return kl(Dirichlet(stack({p.concentration1, p.concentration0}, -1)),
            Dirichlet(stack({q.concentration1, q.concentration0}, -1)));
}
// For one event with logits l and m: p (softplus(-m) - softplus(-l)) + the same for the complement.
Tensor binary_kl(const Tensor& p, const Tensor& l, const Tensor& m) {
  return logistic_loss(m, p) - logistic_loss(l, p);
}
Tensor kl(const Bernoulli& p, const Bernoulli& q) { return binary_kl(p.probs, p.logits, q.logits); }
Tensor kl(const Geometric& p, const Geometric& q) {
  return binary_kl(p.probs, p.logits, q.logits) / p.probs;
}
Tensor kl(const Binomial& p, const Binomial& q) {
  require("kl_divergence", "the counts of two Binomials must be equal",
          p.total_count == q.total_count);
  return p.total_count * binary_kl(p.probs, p.logits, q.logits);
}
Tensor kl(const Poisson& p, const Poisson& q) {
  return xlogy(p.rate, p.rate / q.rate) - (p.rate - q.rate);
}
Tensor kl(const Categorical& p, const Categorical& q) {
  const Tensor t = where(p.probs == 0, 0.0, p.probs * (p.logits - q.logits));
  return sum(where(logical_and(q.probs == 0, p.probs != 0), HUGE_VAL, t), {-1});
}
Tensor kl(const MultivariateNormal& p, const MultivariateNormal& q) {
  const Tensor m = linalg::solve_triangular(q.scale_tril, p.scale_tril, false);
  const Tensor d = linalg::solve_triangular(q.scale_tril, unsqueeze(p.loc - q.loc, -1), false);
  return log_volume(q.scale_tril) - log_volume(p.scale_tril) +
         0.5 * (sum(square(m), {-2, -1}) + sum(square(d), {-2, -1}) -
                static_cast<double>(p.loc.size(-1)));
}
Tensor kl(const HalfNormal& p, const HalfNormal& q) {
  return kl(Normal(0.0, p.scale), Normal(0.0, q.scale));
}
Tensor kl(const Pareto& p, const Pareto& q) {
  const Tensor ratio = p.scale / q.scale, steeper = q.alpha / p.alpha;
  const Tensor y = q.alpha * log(ratio) - log(steeper) + steeper - 1.0;
  return where(p.scale < q.scale, HUGE_VAL, y);
}
Tensor kl(const OneHotCategorical& p, const OneHotCategorical& q) {
  return kl(Categorical({.logits = p.logits}), Categorical({.logits = q.logits}));
}
Tensor kl(const Independent& p, const Independent& q) {
  TD_CHECK(p.reinterpreted() == q.reinterpreted(), Value,
           "kl_divergence: {} and {} batch dimensions are reinterpreted", p.reinterpreted(),
           q.reinterpreted());
  return sum_last(kl_divergence(p.base(), q.base()), p.reinterpreted());
}

template <class D>
bool try_kl(const Distribution& p, const Distribution& q, Tensor& out) {
  const auto* a = dynamic_cast<const D*>(&p);
  const auto* b = dynamic_cast<const D*>(&q);
  if (!a || !b) return false;
  out = kl(*a, *b);
  return true;
}
template <class... D>
bool try_all(const Distribution& p, const Distribution& q, Tensor& out) {
  return (try_kl<D>(p, q, out) || ...);
}

}  // namespace

Tensor kl_divergence(const Distribution& p, const Distribution& q) {
  Tensor out;
  const bool known =
      detail::registered_kl(p, q, out) ||
      try_all<Normal, LogNormal, Uniform, Exponential, Laplace, Gamma, Beta, Dirichlet, Bernoulli,
              Geometric, Binomial, Poisson, Categorical, MultivariateNormal, Independent,
              HalfNormal, Pareto, OneHotCategorical>(p, q, out);
  TD_CHECK(known, Unsupported, "kl_divergence: no formula for {} and {}", p.name(), q.name());
  return out;
}

}  // namespace tandem::distributions
