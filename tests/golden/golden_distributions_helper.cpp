// SPDX-License-Identifier: Apache-2.0
// The golden cases' names of distributions ("Normal.log_prob") -> Tandem's functions.
#include "tandem/distributions/distributions.h"

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
#undef TWO
#undef ONE
  if (name == "StudentT") return std::make_unique<StudentT>(a, b, g.t(at + 2));
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

}  // namespace

void add_distributions(FnTable& t) {
  for (const char* name :
       {"Normal", "LogNormal", "Uniform", "Laplace", "Gumbel", "Cauchy", "Gamma", "Beta",
        "Exponential", "Poisson", "Dirichlet", "Bernoulli", "Geometric", "Categorical", "StudentT",
        "Multinomial", "Binomial", "MultivariateNormal"})
    add_distribution(t, name);
  t["sample_gamma_backward"] = [](const Case& g) -> Ts {
    return {call(op::sample_gamma_backward, nullptr, SourceLocation::here(), g.t(0), g.t(1))};
  };
}

}  // namespace tandem::golden
