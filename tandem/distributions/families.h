// SPDX-License-Identifier: Apache-2.0
// More distributions: on positive numbers and on 0..1, counts, angles, relaxed and one-hot choices,
// matrices, mixtures, and any distribution through transforms. Parameters and errors as in
// distributions.h.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/distributions/distributions.h"
#include "tandem/distributions/transforms.h"

namespace tandem::distributions {

#include "tandem/distributions/members.def"

// ---- on positive numbers
/// |x| of a variable that is symmetric around 0.
class TD_API Folded : public Distribution {
 public:
  Tensor log_prob(const Tensor& value) const override;
  TD_ENTROPY TD_RSAMPLE TD_CDF;

 protected:
  explicit Folded(std::shared_ptr<const Distribution> whole);
  const Distribution& whole() const { return *whole_; }

 private:
  std::shared_ptr<const Distribution> whole_;
};
/// |x| of a normal variable around 0.
struct TD_API HalfNormal : Folded {
  Tensor scale;
  explicit HalfNormal(const Operand& scale);
  const char* name() const override;
  Tensor mean() const override;
  Tensor variance() const override;
};
/// |x| of a Cauchy variable around 0; mean and variance are infinite.
struct TD_API HalfCauchy : Folded {
  Tensor scale;
  explicit HalfCauchy(const Operand& scale);
  const char* name() const override;
  Tensor mean() const override;
  Tensor variance() const override;
};
/// Gamma(df / 2, 1 / 2): the sum of df squared standard normal variables.
struct TD_API Chi2 : Gamma {
  Tensor df;
  explicit Chi2(const Operand& df);
  const char* name() const override;
};
/// The ratio of two Chi2 variables, each over its degrees of freedom.
struct TD_API FisherSnedecor : Distribution {
  Tensor df1, df2;
  FisherSnedecor(const Operand& df1, const Operand& df2);
  TD_MOMENTS TD_RSAMPLE
};
/// 1 / x of a Gamma variable.
struct TD_API InverseGamma : Distribution {
  Tensor concentration, rate;
  InverseGamma(const Operand& concentration, const Operand& rate);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE
};
/// From `scale` up, with a tail of power alpha.
struct TD_API Pareto : Distribution {
  Tensor scale, alpha;
  Pareto(const Operand& scale, const Operand& alpha);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
/// The distribution of excesses over a threshold; concentration 0 is an exponential tail.
struct TD_API GeneralizedPareto : Distribution {
  Tensor loc, scale, concentration;
  GeneralizedPareto(const Operand& loc, const Operand& scale, const Operand& concentration);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
struct TD_API Weibull : Distribution {
  Tensor scale, concentration;
  Weibull(const Operand& scale, const Operand& concentration);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};

// ---- on 0..1, counts, angles
/// (1 - (1 - u)^(1 / concentration0))^(1 / concentration1) of a uniform u.
struct TD_API Kumaraswamy : Distribution {
  Tensor concentration1, concentration0;
  Kumaraswamy(const Operand& concentration1, const Operand& concentration0);
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF
};
/// Density proportional to p^x (1 - p)^(1 - x) on 0..1 (Loaiza-Ganem and Cunningham, 2019). Between
/// `lims`, where the formulas cancel, their Taylor series are used.
struct TD_API ContinuousBernoulli : Distribution {
  Tensor probs, logits;
  std::pair<double, double> lims;
  explicit ContinuousBernoulli(const Chances& p, std::pair<double, double> lims = {0.499, 0.501});
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE TD_CDF;

 private:
  Tensor outside() const;
  Tensor cut() const;
  Tensor log_norm() const;
};
/// Successes of probability probs before total_count failures.
struct TD_API NegativeBinomial : Distribution {
  Tensor total_count, probs, logits;
  NegativeBinomial(const Operand& total_count, const Chances& p);
  TD_MOMENTS TD_SAMPLE
};
/// Angles from -pi to pi around loc. The variance is the circular one.
struct TD_API VonMises : Distribution {
  Tensor loc, concentration;
  VonMises(const Operand& loc, const Operand& concentration);
  TD_MOMENTS TD_SAMPLE
};

// ---- choices
/// Categorical with one-hot vectors for indices.
struct TD_API OneHotCategorical : Distribution {
  Tensor probs, logits;
  explicit OneHotCategorical(const Chances& p);
  TD_MOMENTS TD_ENTROPY TD_SAMPLE
};
/// The same, whose draws pass gradients to the probabilities (Bengio et al. 2013).
struct TD_API OneHotCategoricalStraightThrough : OneHotCategorical {
  explicit OneHotCategoricalStraightThrough(const Chances& p);
  const char* name() const override;
  TD_SAMPLE TD_RSAMPLE
};
/// In 0..1: a differentiable form of Bernoulli (Maddison et al. 2017, Jang et al. 2017).
struct TD_API RelaxedBernoulli : Distribution {
  Tensor temperature, probs, logits;
  RelaxedBernoulli(const Operand& temperature, const Chances& p);
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  TD_RSAMPLE
};
/// Probabilities: a differentiable form of OneHotCategorical.
struct TD_API RelaxedOneHotCategorical : Distribution {
  Tensor temperature, probs, logits;
  RelaxedOneHotCategorical(const Operand& temperature, const Chances& p);
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  TD_RSAMPLE
};
/// Probabilities [..., k + 1] by breaking a stick with normal variables [..., k].
struct TD_API LogisticNormal : Distribution {
  Tensor loc, scale;
  LogisticNormal(const Operand& loc, const Operand& scale);
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  TD_RSAMPLE
};

// ---- vectors and matrices
/// Normal with the covariance cov_factor cov_factor^T + diag(cov_diag): [..., n, rank] and [...,
/// n].
struct TD_API LowRankMultivariateNormal : Distribution {
  Tensor loc, cov_factor, cov_diag;
  LowRankMultivariateNormal(const Tensor& loc, const Tensor& cov_factor, const Tensor& cov_diag);
  Tensor covariance_matrix() const;
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE;

 private:
  Tensor capacitance;  // Cholesky factor of 1 + W^T D^-1 W
  Tensor log_det() const;
};
/// Sums of df outer products of normal vectors: [..., n, n], df > n - 1.
struct TD_API Wishart : Distribution {
  Tensor df, scale_tril;
  Wishart(const Operand& df, const Covariance& c);
  Tensor covariance_matrix() const;
  TD_MOMENTS TD_ENTROPY TD_RSAMPLE;

 private:
  Tensor covariance_;  // as given
};
/// Cholesky factors [..., dim, dim] of correlation matrices (Lewandowski, Kurowicka and Joe, 2009):
/// uniform for a concentration of 1. Sampled by the onion method.
struct TD_API LKJCholesky : Distribution {
  int64_t dim;
  Tensor concentration;
  explicit LKJCholesky(int64_t dim, const Operand& concentration = 1.0);
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  TD_SAMPLE
};

// ---- of other distributions
/// A weighted mixture: the last batch dimension of the components is chosen by a Categorical.
class TD_API MixtureSameFamily : public Distribution {
 public:
  MixtureSameFamily(Categorical mixture, std::shared_ptr<const Distribution> components);
  const Categorical& mixture_distribution() const { return mixture_; }
  const Distribution& component_distribution() const { return *components_; }
  Tensor cdf(const Tensor& value) const override;
  TD_MOMENTS TD_SAMPLE;

 private:
  Tensor weights() const;
  Categorical mixture_;
  std::shared_ptr<const Distribution> components_;
};
/// y = transforms(x) of a variable x of `base`. Throws Shape where a transform would make the batch
/// larger: give the base parameters of that shape.
class TD_API TransformedDistribution : public Distribution {
 public:
  TransformedDistribution(std::shared_ptr<const Distribution> base,
                          std::vector<TransformPtr> transforms);
  const Distribution& base_dist() const { return *base_; }
  const std::vector<TransformPtr>& transforms() const { return transforms_; }
  const char* name() const override;
  Tensor log_prob(const Tensor& value) const override;
  TD_SAMPLE TD_RSAMPLE TD_CDF;

 private:
  Tensor forward(Tensor x) const;
  Tensor turned(const Tensor& p) const;
  std::shared_ptr<const Distribution> base_;
  std::vector<TransformPtr> transforms_;
};

#include "tandem/distributions/members_end.def"

/// Teach kl_divergence a formula for distributions of these names (`name()`); it comes before those
/// of the library. Thread-safe.
TD_API void register_kl(const char* p, const char* q,
                        std::function<Tensor(const Distribution&, const Distribution&)> formula);

}  // namespace tandem::distributions
