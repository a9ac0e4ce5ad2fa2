// SPDX-License-Identifier: Apache-2.0
// Probability distributions with torch.distributions' names and arguments. Parameters are tensors
// or numbers and broadcast to the batch shape; gradients flow into them through log_prob, and
// through rsample where draws are differentiable. Parameters out of range throw Value in the
// constructor.
#pragma once

#include <memory>
#include <string_view>

#include "tandem/graph/apply.h"

namespace tandem::distributions {

/// The interface of every distribution. Functions that a distribution lacks throw Unsupported.
class TD_API Distribution {
 public:
  virtual ~Distribution() = default;
  virtual const char* name() const = 0;
  const Shape& batch_shape() const { return batch_; }
  const Shape& event_shape() const { return event_; }

  /// Draws [*shape, *batch, *event], without a gradient.
  virtual Tensor sample(const Shape& shape = {}) const;
  /// Draws that are differentiable with respect to the parameters.
  virtual Tensor rsample(const Shape& shape = {}) const;
  /// The logarithm of the density (or probability) at value: [..., *batch].
  virtual Tensor log_prob(const Tensor& value) const;
  virtual Tensor cdf(const Tensor& value) const;
  virtual Tensor icdf(const Tensor& value) const;
  virtual Tensor entropy() const;
  virtual Tensor mean() const;
  virtual Tensor variance() const;
  Tensor stddev() const;

 protected:
  [[noreturn]] void has_no(const char* what) const;
  /// *shape followed by batch and event.
  Shape extended(const Shape& shape) const;
  Shape batch_, event_;
};

/// Either the probabilities or their logits: `Bernoulli({.probs = p})`.
struct Chances {
  Tensor probs = {}, logits = {};
};

#include "tandem/distributions/members.def"

struct TD_API Normal : Distribution {
  Tensor loc, scale;
  Normal(const Operand& loc, const Operand& scale);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
/// exp of a normal variable.
struct TD_API LogNormal : Distribution {
  Tensor loc, scale;
  LogNormal(const Operand& loc, const Operand& scale);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Uniform : Distribution {
  Tensor low, high;
  Uniform(const Operand& low, const Operand& high);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Exponential : Distribution {
  Tensor rate;
  explicit Exponential(const Operand& rate);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Laplace : Distribution {
  Tensor loc, scale;
  Laplace(const Operand& loc, const Operand& scale);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Gumbel : Distribution {
  Tensor loc, scale;
  Gumbel(const Operand& loc, const Operand& scale);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
/// mean is NaN, variance infinite.
struct TD_API Cauchy : Distribution {
  Tensor loc, scale;
  Cauchy(const Operand& loc, const Operand& scale);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Gamma : Distribution {
  Tensor concentration, rate;
  Gamma(const Operand& concentration, const Operand& rate);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
/// In 0..1; concentration1 pulls towards 1.
struct TD_API Beta : Distribution {
  Tensor concentration1, concentration0;
  Beta(const Operand& concentration1, const Operand& concentration0);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
/// Probabilities [..., k] from concentrations [..., k].
struct TD_API Dirichlet : Distribution {
  Tensor concentration;
  explicit Dirichlet(const Tensor& concentration);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
struct TD_API StudentT : Distribution {
  Tensor df, loc, scale;
  explicit StudentT(const Operand& df, const Operand& loc = 0.0, const Operand& scale = 1.0);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
struct TD_API Bernoulli : Distribution {
  Tensor probs, logits;
  explicit Bernoulli(const Chances& p);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
/// Failures before the first success: 0, 1, ...
struct TD_API Geometric : Distribution {
  Tensor probs, logits;
  explicit Geometric(const Chances& p);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
struct TD_API Poisson : Distribution {
  Tensor rate;
  explicit Poisson(const Operand& rate);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
struct TD_API Binomial : Distribution {
  Tensor total_count, probs, logits;
  Binomial(const Operand& total_count, const Chances& p);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
/// Indices (int64) into the last dimension of probs or logits, which need not be normalised.
struct TD_API Categorical : Distribution {
  Tensor probs, logits;
  explicit Categorical(const Chances& p);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
/// How often each index occurs in total_count draws.
struct TD_API Multinomial : Distribution {
  int64_t total_count;
  Tensor probs, logits;
  Multinomial(int64_t total_count, const Chances& p);
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor mean() const override;
  Tensor variance() const override;
  TD_SAMPLE
};
/// Set exactly one: a covariance, a precision or the lower Cholesky factor of the covariance.
struct Covariance {
  Tensor covariance_matrix = {}, precision_matrix = {}, scale_tril = {};
};
struct TD_API MultivariateNormal : Distribution {
  Tensor loc, scale_tril;
  MultivariateNormal(const Tensor& loc, const Covariance& c);
  Tensor covariance_matrix() const;
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
/// Another distribution whose last batch dimensions are treated as part of the event.
class TD_API Independent : public Distribution {
 public:
  Independent(std::shared_ptr<const Distribution> base, int64_t reinterpreted_batch_ndims);
  const Distribution& base() const { return *base_; }
  int64_t reinterpreted() const { return n_; }
  TD_MOMENTS TD_ENTROPY TD_SAMPLE TD_RSAMPLE;

 private:
  std::shared_ptr<const Distribution> base_;
  int64_t n_;
};

#include "tandem/distributions/members_end.def"

/// KL(p || q) for two distributions of the same kind (for Independent, of the same base). Throws
/// Unsupported for other pairs, naming both.
TD_API Tensor kl_divergence(const Distribution& p, const Distribution& q);

}  // namespace tandem::distributions
