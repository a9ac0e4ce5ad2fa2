// SPDX-License-Identifier: Apache-2.0
// The golden cases' names of distributions ("Normal.log_prob") -> Tandem's functions.
#include "tandem/distributions/distributions.h"
#include "tandem/distributions/families.h"
#include "tandem/distributions/transforms.h"

#include <memory>

#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

using namespace distributions;
using DistributionPtr = std::unique_ptr<Distribution>;

// The distribution of a case's op whose parameters are the inputs from `at` on.
DistributionPtr make_distribution(const Case& g, size_t at) {
  const std::string name = g.op.substr(0, g.op.find('.'));
  const Tensor &a = g.t(at), &b = g.t(at + 1);
  const Chances p = g.b("logits") ? Chances{.logits = a} : Chances{.probs = a};
#define TWO(Type) \
  if (name == #Type) return std::make_unique<Type>(a, b)
#define ONE(Type, v) \
  if (name == #Type) return std::make_unique<Type>(v)
  TWO(Normal);
  TWO(LogNormal);
  TWO(Uniform);
  TWO(Laplace);
  TWO(Gumbel);
  TWO(Cauchy);
  TWO(Gamma);
  TWO(Beta);
  ONE(Exponential, a);
  ONE(Poisson, a);
  ONE(Dirichlet, a);
  ONE(Bernoulli, p);
  ONE(Geometric, p);
  ONE(Categorical, p);
  ONE(HalfNormal, a);
  ONE(HalfCauchy, a);
  ONE(Chi2, a);
  TWO(FisherSnedecor);
  TWO(InverseGamma);
  TWO(Pareto);
  TWO(Weibull);
  TWO(Kumaraswamy);
  ONE(ContinuousBernoulli, p);
  TWO(VonMises);
  ONE(OneHotCategorical, p);
  TWO(LogisticNormal);
#undef TWO
#undef ONE
  if (name == "StudentT") return std::make_unique<StudentT>(a, b, g.t(at + 2));
  const Tensor& c = g.t(at + 2);
  const Chances second = g.b("logits") ? Chances{.logits = b} : Chances{.probs = b};
  if (name == "GeneralizedPareto") return std::make_unique<GeneralizedPareto>(a, b, c);
  if (name == "NegativeBinomial") return std::make_unique<NegativeBinomial>(a, second);
  if (name == "RelaxedBernoulli") return std::make_unique<RelaxedBernoulli>(a, second);
  if (name == "RelaxedOneHotCategorical")
    return std::make_unique<RelaxedOneHotCategorical>(a, second);
  if (name == "LowRankMultivariateNormal")
    return std::make_unique<LowRankMultivariateNormal>(a, b, c);
  if (name == "Wishart") return std::make_unique<Wishart>(a, Covariance{.covariance_matrix = b});
  if (name == "LKJCholesky") return std::make_unique<LKJCholesky>(3, a);
  if (name == "MixtureSameFamily")
    return std::make_unique<MixtureSameFamily>(Categorical({.probs = a}),
                                               std::make_shared<Normal>(b, c));
  if (name == "TransformedDistribution")
    return std::make_unique<TransformedDistribution>(
        std::make_shared<Normal>(a, b),
        std::vector<TransformPtr>{std::make_shared<AffineTransform>(0.5, -2.0),
                                  std::make_shared<ExpTransform>()});
  if (name == "Multinomial") return std::make_unique<distributions::Multinomial>(6, p);
  if (name == "Binomial") return std::make_unique<Binomial>(a, Chances{.probs = b});
  return std::make_unique<MultivariateNormal>(a, Covariance{.covariance_matrix = b});
}

void add_distribution(FnTable& t, const std::string& name) {
  t[name + ".log_prob"] = [](const Case& g) -> Ts {
    return {make_distribution(g, 1)->log_prob(g.t(0))};
  };
  t[name + ".cdf"] = [](const Case& g) -> Ts { return {make_distribution(g, 1)->cdf(g.t(0))}; };
  t[name + ".icdf"] = [](const Case& g) -> Ts { return {make_distribution(g, 1)->icdf(g.t(0))}; };
  t[name + ".mean"] = [](const Case& g) -> Ts { return {make_distribution(g, 0)->mean()}; };
  t[name + ".variance"] = [](const Case& g) -> Ts { return {make_distribution(g, 0)->variance()}; };
  t[name + ".entropy"] = [](const Case& g) -> Ts { return {make_distribution(g, 0)->entropy()}; };
  t[name + ".kl"] = [](const Case& g) -> Ts {
    return {kl_divergence(*make_distribution(g, 0), *make_distribution(g, g.n() / 2))};
  };
}

// ---- transforms, as in make_golden_distributions.py

TransformPtr make_transform(const std::string& name) {
  const auto list = [] {
    return std::vector<TransformPtr>{std::make_shared<ExpTransform>(),
                                     std::make_shared<TanhTransform>()};
  };
#define PLAIN(Name) \
  if (name == #Name) return std::make_shared<Name##Transform>()
  PLAIN(Exp);
  PLAIN(Sigmoid);
  PLAIN(Softplus);
  PLAIN(Tanh);
  PLAIN(Abs);
  PLAIN(StickBreaking);
  PLAIN(Softmax);
  PLAIN(CorrCholesky);
  PLAIN(LowerCholesky);
  PLAIN(PositiveDefinite);
#undef PLAIN
  using Kind = Constraint::Kind;
  if (name == "Power") return std::make_shared<PowerTransform>(2.5);
  if (name == "Affine") return std::make_shared<AffineTransform>(0.5, -2.0, 1);
  if (name == "Reshape") return std::make_shared<ReshapeTransform>(Shape(2, 3), Shape(6));
  if (name == "CumulativeDistribution")
    return std::make_shared<CumulativeDistributionTransform>(std::make_shared<Normal>(0.5, 2.0));
  if (name == "Independent")
    return std::make_shared<IndependentTransform>(std::make_shared<ExpTransform>(), 1);
  if (name == "Compose")
    return std::make_shared<ComposeTransform>(std::vector<TransformPtr>{
        std::make_shared<ExpTransform>(), std::make_shared<AffineTransform>(1.0, 3.0)});
  if (name == "Cat") return std::make_shared<CatTransform>(list(), 1, std::vector<int64_t>{2, 1});
  if (name == "Stack") return std::make_shared<StackTransform>(list(), 0);
  if (name == "biject_to_interval") return biject_to({Kind::interval, -1, 3});
  if (name == "biject_to_greater_than") return biject_to({Kind::greater_than, 2});
  return biject_to({Kind::simplex});
}

Ts through_transform(const Case& g) {
  const TransformPtr t = make_transform(g.op.substr(g.op.find('.') + 1));
  const Tensor x = g.t(0), y = (*t)(x);
  Ts out{y, t->inv(y)};
  if (g.list_of("outputs").size() == 3) out.push_back(t->log_abs_det_jacobian(x, y));
  return out;
}

}  // namespace

void add_distributions(FnTable& t) {
  for (const char* name : {"Normal",
                           "LogNormal",
                           "Uniform",
                           "Laplace",
                           "Gumbel",
                           "Cauchy",
                           "Gamma",
                           "Beta",
                           "Exponential",
                           "Poisson",
                           "Dirichlet",
                           "Bernoulli",
                           "Geometric",
                           "Categorical",
                           "StudentT",
                           "Multinomial",
                           "Binomial",
                           "MultivariateNormal",
                           "HalfNormal",
                           "HalfCauchy",
                           "Chi2",
                           "FisherSnedecor",
                           "InverseGamma",
                           "Pareto",
                           "GeneralizedPareto",
                           "Weibull",
                           "Kumaraswamy",
                           "ContinuousBernoulli",
                           "NegativeBinomial",
                           "VonMises",
                           "OneHotCategorical",
                           "RelaxedBernoulli",
                           "RelaxedOneHotCategorical",
                           "LogisticNormal",
                           "LowRankMultivariateNormal",
                           "Wishart",
                           "LKJCholesky",
                           "MixtureSameFamily",
                           "TransformedDistribution"})
    add_distribution(t, name);
  for (const char* name : {"Exp",
                           "Power",
                           "Sigmoid",
                           "Softplus",
                           "Tanh",
                           "Abs",
                           "Affine",
                           "StickBreaking",
                           "Softmax",
                           "CorrCholesky",
                           "LowerCholesky",
                           "PositiveDefinite",
                           "Reshape",
                           "CumulativeDistribution",
                           "Independent",
                           "Compose",
                           "Cat",
                           "Stack",
                           "biject_to_interval",
                           "biject_to_greater_than",
                           "biject_to_simplex"})
    t[std::string("transform.") + name] = through_transform;
  t["sample_gamma_backward"] = [](const Case& g) -> Ts {
    return {call(op::sample_gamma_backward, nullptr, SourceLocation::here(), g.t(0), g.t(1))};
  };
}

}  // namespace tandem::golden
