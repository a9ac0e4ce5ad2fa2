// SPDX-License-Identifier: Apache-2.0
// Distributions of vectors and matrices, mixtures and transformed distributions (families.h).
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <string>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/distributions/families.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/matmul/matrix.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

using namespace detail;

namespace {

// The first (last) dimensions of a shape.
Shape leading_dims(const Shape& s, int n) {
  Shape out;
  for (int i = 0; i < n; ++i) out.push_back(s[i]);
  return out;
}
Shape trailing_dims(const Shape& s, int n) {
  Shape out;
  for (int i = s.rank() - n; i < s.rank(); ++i) out.push_back(s[i]);
  return out;
}
Tensor open_unit(const Shape& shape, DType dtype) {
  const double e = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
  return clamp(tandem::rand(shape, dtype), e, 1 - e);
}
Tensor times_vector(const Tensor& m, const Tensor& v) {
  return squeeze(matmul(m, unsqueeze(v, -1)), -1);
}
Tensor transposed(const Tensor& m) { return transpose(m, -2, -1); }
Tensor diagonal_of(const Tensor& m) { return tandem::diagonal(m, 0, -2, -1); }
Tensor as_matrix(const Tensor& v) { return unsqueeze(unsqueeze(v, -1), -1); }

}  // namespace

#define TD_NAME(Type) \
  const char* Type::name() const { return #Type; }

// ---- choices

TD_NAME(OneHotCategorical)
OneHotCategorical::OneHotCategorical(const Chances& p) {
  chances("OneHotCategorical", p, false, probs, logits);
  batch_ = leading_dims(probs.shape(), probs.dim() - 1);
  event_ = Shape(probs.shape(-1));
}
Tensor OneHotCategorical::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return one_hot(Categorical({.probs = probs}).sample(shape), probs.size(-1)).to(probs.dtype());
}
Tensor OneHotCategorical::log_prob(const Tensor& value) const {
  return Categorical({.logits = logits}).log_prob(argmax(value, -1));
}
Tensor OneHotCategorical::entropy() const { return Categorical({.logits = logits}).entropy(); }
Tensor OneHotCategorical::mean() const { return probs; }
Tensor OneHotCategorical::variance() const { return probs * (1.0 - probs); }

TD_NAME(OneHotCategoricalStraightThrough)
OneHotCategoricalStraightThrough::OneHotCategoricalStraightThrough(const Chances& p)
    : OneHotCategorical(p) {}
Tensor OneHotCategoricalStraightThrough::sample(const Shape& shape) const {
  return OneHotCategorical::sample(shape);
}
Tensor OneHotCategoricalStraightThrough::rsample(const Shape& shape) const {
  return sample(shape) + (probs - probs.detach());
}

TD_NAME(RelaxedBernoulli)
RelaxedBernoulli::RelaxedBernoulli(const Operand& t, const Chances& p) {
  chances("RelaxedBernoulli", p, true, probs, logits);
  const Operand one(probs), other(logits);
  broadcast_parameters({&t, &one, &other}, {&temperature, &probs, &logits});
  batch_ = probs.shape();
  require("RelaxedBernoulli", "temperature must be positive", temperature > 0);
}
Tensor RelaxedBernoulli::rsample(const Shape& shape) const {
  const Tensor u = open_unit(extended(shape), probs.dtype());
  return SigmoidTransform()((log(u) - log1p(-u) + logits) / temperature);
}
Tensor RelaxedBernoulli::log_prob(const Tensor& value) const {
  const SigmoidTransform squash;
  const Tensor x = squash.inv(value), gap = logits - x * temperature;
  return log(temperature) + gap + 2.0 * logsigmoid(-gap) - squash.log_abs_det_jacobian(x, value);
}

TD_NAME(RelaxedOneHotCategorical)
RelaxedOneHotCategorical::RelaxedOneHotCategorical(const Operand& t, const Chances& p) {
  chances("RelaxedOneHotCategorical", p, false, probs, logits);
  temperature = t.is_scalar() ? full(Shape(), t.scalar(), probs.dtype()) : t.tensor();
  require("RelaxedOneHotCategorical", "temperature must be positive", temperature > 0);
  batch_ = leading_dims(probs.shape(), probs.dim() - 1);
  event_ = Shape(probs.shape(-1));
}
Tensor RelaxedOneHotCategorical::rsample(const Shape& shape) const {
  const Tensor noise = -log(-log(open_unit(extended(shape), logits.dtype())));
  return softmax((logits + noise) / temperature, -1);
}
Tensor RelaxedOneHotCategorical::log_prob(const Tensor& value) const {
  const auto k = static_cast<double>(probs.size(-1));
  const Tensor x = log(value);
  const Tensor score = sum(log_softmax(logits - x * temperature, -1), {-1});
  return score + std::lgamma(k) + (k - 1) * log(temperature) - sum(x, {-1});
}

TD_NAME(LogisticNormal)
LogisticNormal::LogisticNormal(const Operand& l, const Operand& s) {
  broadcast_parameters({&l, &s}, {&loc, &scale});
  if (loc.dim() == 0) {
    loc = unsqueeze(loc, 0);
    scale = unsqueeze(scale, 0);
  }
  require("LogisticNormal", "scale must be positive", scale > 0);
  batch_ = leading_dims(loc.shape(), loc.dim() - 1);
  event_ = Shape(loc.shape(-1) + Dim(1));
}
Tensor LogisticNormal::rsample(const Shape& shape) const {
  return StickBreakingTransform()(Normal(loc, scale).rsample(shape));
}
Tensor LogisticNormal::log_prob(const Tensor& value) const {
  const StickBreakingTransform stick;
  const Tensor x = stick.inv(value);
  return sum(Normal(loc, scale).log_prob(x), {-1}) - stick.log_abs_det_jacobian(x, value);
}

// ---- vectors and matrices

TD_NAME(LowRankMultivariateNormal)
LowRankMultivariateNormal::LowRankMultivariateNormal(const Tensor& l, const Tensor& w,
                                                     const Tensor& d) {
  TD_CHECK(l.dim() >= 1 && w.dim() >= 2 && d.dim() >= 1 && dims_equal(w.shape(-2), l.shape(-1)) &&
               dims_equal(d.shape(-1), l.shape(-1)),
           Shape,
           "LowRankMultivariateNormal: loc is {}, cov_factor {}, cov_diag {}; expects [..., n], "
           "[..., n, rank] and [..., n]",
           l.shape().to_string(), w.shape().to_string(), d.shape().to_string());
  require("LowRankMultivariateNormal", "cov_diag must be positive", d > 0);
  batch_ = broadcast_shapes(
      leading_dims(l.shape(), l.dim() - 1),
      broadcast_shapes(leading_dims(w.shape(), w.dim() - 2), leading_dims(d.shape(), d.dim() - 1)));
  event_ = Shape(l.shape(-1));
  Shape factor = extended({});
  factor.push_back(w.shape(-1));
  loc = expand(l, extended({}));
  cov_factor = expand(w, factor);
  cov_diag = expand(d, extended({}));
  const Tensor scaled = transposed(cov_factor) / unsqueeze(cov_diag, -2);
  capacitance = linalg::cholesky(matmul(scaled, cov_factor) + eye(w.size(-1), -1, w.dtype()));
}
Tensor LowRankMultivariateNormal::covariance_matrix() const {
  return matmul(cov_factor, cov_factor, MatmulAttrs{false, true}) + diag_embed(cov_diag);
}
Tensor LowRankMultivariateNormal::log_det() const {
  return 2.0 * sum(log(diagonal_of(capacitance)), {-1}) + sum(log(cov_diag), {-1});
}
Tensor LowRankMultivariateNormal::rsample(const Shape& shape) const {
  const Shape s = extended(shape);
  Shape inner = leading_dims(s, s.rank() - 1);
  inner.push_back(cov_factor.shape(-1));
  return loc + times_vector(cov_factor, randn(inner, loc.dtype())) +
         sqrt(cov_diag) * randn(s, loc.dtype());
}
Tensor LowRankMultivariateNormal::log_prob(const Tensor& value) const {
  // The squared distance by the matrix inversion lemma.
  const Tensor d = value - loc, scaled = transposed(cov_factor) / unsqueeze(cov_diag, -2);
  const Tensor z =
      linalg::solve_triangular(capacitance, unsqueeze(times_vector(scaled, d), -1), false);
  const Tensor distance = sum(square(d) / cov_diag, {-1}) - sum(square(z), {-2, -1});
  const double n = static_cast<double>(loc.size(-1)) * std::log(2 * std::numbers::pi);
  return -0.5 * (n + log_det() + distance);
}
Tensor LowRankMultivariateNormal::entropy() const {
  const double n = static_cast<double>(loc.size(-1)) * (1 + std::log(2 * std::numbers::pi));
  return 0.5 * (n + log_det());
}
Tensor LowRankMultivariateNormal::mean() const { return loc; }
Tensor LowRankMultivariateNormal::variance() const {
  return sum(square(cov_factor), {-1}) + cov_diag;
}

namespace {
// The sum of digamma(x - j / 2) over j < p.
Tensor multivariate_digamma(const Tensor& x, int64_t p) {
  return sum(digamma(unsqueeze(x, -1) - arange(p, x.dtype()) * 0.5), {-1});
}
Tensor root_of(const char* name, const Covariance& c) {
  const int given =
      c.covariance_matrix.defined() + c.precision_matrix.defined() + c.scale_tril.defined();
  TD_CHECK(given == 1, Value,
           "{}: expected one of covariance_matrix, precision_matrix and scale_tril, got {}", name,
           given);
  if (c.scale_tril.defined()) return c.scale_tril;
  if (c.covariance_matrix.defined()) return linalg::cholesky(c.covariance_matrix);
  return linalg::cholesky(linalg::inv(c.precision_matrix));
}
}  // namespace

TD_NAME(Wishart)
Wishart::Wishart(const Operand& d, const Covariance& c) {
  const Tensor root = root_of("Wishart", c);
  TD_CHECK(root.dim() >= 2 && dims_equal(root.shape(-1), root.shape(-2)), Shape,
           "Wishart: expected square matrices, got {}", root.shape().to_string());
  const Tensor freedom =
      d.is_scalar() ? full(Shape(), d.scalar(), root.dtype()) : d.tensor().to(root.dtype());
  batch_ = broadcast_shapes(leading_dims(root.shape(), root.dim() - 2), freedom.shape());
  event_ = trailing_dims(root.shape(), 2);
  df = expand(freedom, batch_);
  scale_tril = expand(root, extended({}));
  if (c.covariance_matrix.defined()) covariance_ = expand(c.covariance_matrix, extended({}));
  require("Wishart", "df must be above the size of the matrix minus 1",
          df > static_cast<double>(root.size(-1) - 1));
}
Tensor Wishart::covariance_matrix() const {
  if (covariance_.defined()) return covariance_;  // its gradient is that of the whole matrix
  return matmul(scale_tril, scale_tril, MatmulAttrs{false, true});
}
// By Bartlett's decomposition.
Tensor Wishart::rsample(const Shape& shape) const {
  const int64_t p = scale_tril.size(-1);
  const Tensor freedom = unsqueeze(df, -1) - arange(p, df.dtype());
  const Tensor diagonal = sqrt(Chi2(freedom).rsample(shape));
  const Tensor noise = diag_embed(diagonal) + tril(randn(extended(shape), scale_tril.dtype()), -1);
  const Tensor root = matmul(scale_tril, noise);
  return matmul(root, root, MatmulAttrs{false, true});
}
Tensor Wishart::log_prob(const Tensor& value) const {
  const int64_t n = scale_tril.size(-1);
  const auto p = static_cast<double>(n);
  const Tensor solved = linalg::cholesky_solve(value, scale_tril);
  return -df * (p * std::log(2.0) / 2 + sum(log(diagonal_of(scale_tril)), {-1})) -
         mvlgamma(df * 0.5, n) + (df - p - 1.0) * 0.5 * linalg::slogdet(value).logabsdet -
         0.5 * sum(diagonal_of(solved), {-1});
}
Tensor Wishart::entropy() const {
  const int64_t n = scale_tril.size(-1);
  const auto p = static_cast<double>(n);
  return (p + 1) * (p * std::log(2.0) / 2 + sum(log(diagonal_of(scale_tril)), {-1})) +
         mvlgamma(df * 0.5, n) - (df - p - 1.0) * 0.5 * multivariate_digamma(df * 0.5, n) +
         df * p * 0.5;
}
Tensor Wishart::mean() const { return as_matrix(df) * covariance_matrix(); }
Tensor Wishart::variance() const {
  const Tensor v = covariance_matrix(), d = diagonal_of(v);
  return as_matrix(df) * (square(v) + unsqueeze(d, -1) * unsqueeze(d, -2));
}

TD_NAME(LKJCholesky)
LKJCholesky::LKJCholesky(int64_t d, const Operand& c) : dim(d) {
  TD_CHECK(d >= 2, Value, "LKJCholesky: dim is {}, expected at least 2", d);
  broadcast_parameters({&c}, {&concentration});
  require("LKJCholesky", "concentration must be positive", concentration > 0);
  batch_ = concentration.shape();
  event_ = Shape(d, d);
}
Tensor LKJCholesky::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  const DType t = concentration.dtype();
  const Tensor offset = cat({zeros({1}, t), arange(dim - 1, t)});
  const Tensor marginal = concentration + 0.5 * static_cast<double>(dim - 2);
  const Tensor y =
      unsqueeze(Beta(offset + 0.5, unsqueeze(marginal, -1) - 0.5 * offset).sample(shape), -1);
  const Tensor direction = tril(randn(extended(shape), t), -1);
  const Tensor length = norm(direction, 2, {-1}, true);
  const Tensor w = sqrt(y) * where(length > 0, direction / where(length > 0, length, 1.0), 0.0);
  const double tiny = t == DType::f64 ? 0x1p-1022 : 0x1p-126;
  return w + diag_embed(sqrt(clamp_min(1.0 - sum(square(w), {-1}), tiny)));
}
Tensor LKJCholesky::log_prob(const Tensor& value) const {
  const auto n = static_cast<double>(dim);
  const Tensor d = narrow(diagonal_of(value), -1, 1, dim - 1);
  const Tensor row = arange(2, dim + 1).to(concentration.dtype());
  const Tensor order = 2.0 * unsqueeze(concentration - 1.0, -1) + n - row;
  const Tensor alpha = concentration + 0.5 * (n - 1);
  const Tensor norm = 0.5 * (n - 1) * std::log(std::numbers::pi) + mvlgamma(alpha - 0.5, dim - 1) -
                      lgamma(alpha) * (n - 1);
  return sum(order * log(d), {-1}) - norm;
}

// ---- mixtures

TD_NAME(MixtureSameFamily)
MixtureSameFamily::MixtureSameFamily(Categorical mixture,
                                     std::shared_ptr<const Distribution> components)
    : mixture_(std::move(mixture)), components_(std::move(components)) {
  TD_CHECK(components_ != nullptr, Value, "MixtureSameFamily: expected components");
  const Shape& b = components_->batch_shape();
  TD_CHECK(b.rank() >= 1 && dims_equal(b.back(), mixture_.probs.shape(-1)), Shape,
           "MixtureSameFamily: {} weights for components of batch {}",
           mixture_.probs.shape().to_string(), b.to_string());
  batch_ = leading_dims(b, b.rank() - 1);
  broadcast_shapes(mixture_.batch_shape(), batch_);  // throws if they do not fit
  event_ = components_->event_shape();
}
// The weights with ones for the dimensions of an event.
Tensor MixtureSameFamily::weights() const {
  Tensor w = mixture_.probs;
  for (int i = 0; i < event_.rank(); ++i) w = unsqueeze(w, -1);
  return w;
}
Tensor MixtureSameFamily::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  const Tensor all = components_->sample(shape);
  const int at = shape.rank() + batch_.rank();
  Shape picked;
  for (Dim d : shape) picked.push_back(d);
  for (Dim d : batch_) picked.push_back(d);
  // One choice per element of the batch, even where the weights are shared.
  Categorical choice({.probs = expand(mixture_.probs, [&] {
                        Shape s = batch_;
                        s.push_back(mixture_.probs.shape(-1));
                        return s;
                      }())});
  Tensor index = unsqueeze(choice.sample(shape), -1);
  for (int i = 0; i < event_.rank(); ++i) index = unsqueeze(index, -1);
  picked.push_back(1);
  for (Dim d : event_) picked.push_back(d);
  return squeeze(gather(all, at, expand(index, picked)), at);
}
Tensor MixtureSameFamily::log_prob(const Tensor& value) const {
  const Tensor parts = components_->log_prob(unsqueeze(value, -1 - event_.rank()));
  return logsumexp(parts + log_softmax(mixture_.logits, -1), {-1});
}
Tensor MixtureSameFamily::cdf(const Tensor& value) const {
  return sum(components_->cdf(unsqueeze(value, -1 - event_.rank())) * mixture_.probs, {-1});
}
Tensor MixtureSameFamily::mean() const {
  return sum(weights() * components_->mean(), {-1 - event_.rank()});
}
Tensor MixtureSameFamily::variance() const {
  const int at = -1 - event_.rank();
  const Tensor gap = components_->mean() - unsqueeze(mean(), at);
  return sum(weights() * (components_->variance() + square(gap)), {at});
}

// ---- transformed

TD_NAME(TransformedDistribution)
TransformedDistribution::TransformedDistribution(std::shared_ptr<const Distribution> base,
                                                 std::vector<TransformPtr> transforms)
    : base_(std::move(base)), transforms_(std::move(transforms)) {
  TD_CHECK(base_ != nullptr, Value, "TransformedDistribution: expected a distribution");
  const ComposeTransform all(transforms_);
  Shape from = base_->batch_shape();
  for (Dim d : base_->event_shape()) from.push_back(d);
  TD_CHECK(from.rank() >= all.domain_dims(), Shape,
           "TransformedDistribution: the transforms act on {} dimensions, the base has shape {}",
           all.domain_dims(), from.to_string());
  const Shape to = all.forward_shape(from);
  TD_CHECK(all.inverse_shape(to) == from, Shape,
           "TransformedDistribution: the transforms make {} from {}: the base must have as large a "
           "batch",
           to.to_string(), from.to_string());
  const int event = base_->event_shape().rank();
  if (all.domain_dims() > event)
    base_ = std::make_shared<Independent>(base_, all.domain_dims() - event);
  const int dims = std::max(all.codomain_dims(),
                            base_->event_shape().rank() + all.codomain_dims() - all.domain_dims());
  batch_ = leading_dims(to, to.rank() - dims);
  event_ = trailing_dims(to, dims);
}
Tensor TransformedDistribution::forward(Tensor x) const {
  for (const TransformPtr& t : transforms_) x = (*t)(x);
  return x;
}
Tensor TransformedDistribution::sample(const Shape& shape) const {
  NoGradGuard no_grad;
  return forward(base_->sample(shape));
}
Tensor TransformedDistribution::rsample(const Shape& shape) const {
  return forward(base_->rsample(shape));
}
Tensor TransformedDistribution::log_prob(const Tensor& value) const {
  int dims = event_.rank();
  Tensor y = value, total;
  for (auto t = transforms_.rbegin(); t != transforms_.rend(); ++t) {
    const Tensor x = (*t)->inv(y);
    dims += (*t)->domain_dims() - (*t)->codomain_dims();
    const Tensor term = sum_last((*t)->log_abs_det_jacobian(x, y), dims - (*t)->domain_dims());
    total = total.defined() ? total + term : term;
    y = x;
  }
  const Tensor base = sum_last(base_->log_prob(y), dims - base_->event_shape().rank());
  return total.defined() ? base - total : base;
}
// p, or 1 - p where the transforms fall.
Tensor TransformedDistribution::turned(const Tensor& p) const {
  const Tensor s = ComposeTransform(transforms_).sign().to(p.dtype());
  return s * (p - 0.5) + 0.5;
}
Tensor TransformedDistribution::cdf(const Tensor& value) const {
  return turned(base_->cdf(ComposeTransform(transforms_).inv(value)));
}
Tensor TransformedDistribution::icdf(const Tensor& value) const {
  return forward(base_->icdf(turned(value)));
}

#undef TD_NAME

// ---- formulas of users

namespace {

using Formula = std::function<Tensor(const Distribution&, const Distribution&)>;
struct Formulas {
  std::mutex lock;
  std::map<std::pair<std::string, std::string>, Formula> of;
};
Formulas& formulas() {
  static auto* f = new Formulas;
  return *f;
}

}  // namespace

void register_kl(const char* p, const char* q, Formula formula) {
  TD_CHECK(formula != nullptr, Value, "register_kl: expected a formula");
  Formulas& f = formulas();
  const std::lock_guard<std::mutex> guard(f.lock);
  f.of[{p, q}] = std::move(formula);
}

namespace detail {
bool registered_kl(const Distribution& p, const Distribution& q, Tensor& out) {
  Formula formula;
  {
    Formulas& f = formulas();
    const std::lock_guard<std::mutex> guard(f.lock);
    const auto at = f.of.find({p.name(), q.name()});
    if (at == f.of.end()) return false;
    formula = at->second;
  }
  out = formula(p, q);
  return true;
}
}  // namespace detail

}  // namespace tandem::distributions
