// SPDX-License-Identifier: Apache-2.0
// Rows of gamma, Poisson and binomial draws: rejection sampling with a bounded expected number of
// blocks, each a pure function of (seed, offset, element, draw).
#include "tandem/ops/random/sampling.h"

#include <cmath>
#include <limits>

#include "tandem/base/philox.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random_kernels_internal.h"

namespace tandem {
namespace {

using detail::Packed;
using detail::visit_floating;
using detail::Wide;

// A stream of uniform numbers for one element.
class Draws {
 public:
  Draws(RngKey key, int64_t element) : key_(key), element_(static_cast<uint64_t>(element)) {}
  PhiloxBlock block() { return philox(key_.seed, key_.offset, element_, draw_++); }
  /// In (0, 1].
  double uniform() { return 1.0 - uniform_f64(block().word64(0)); }

 private:
  RngKey key_;
  uint64_t element_;
  uint32_t draw_ = 0;
};

double draw_gamma(Draws& u, double a) {
  double boost = 1;
  if (a < 1) {
    boost = tdm_exp(tdm_log(u.uniform()) / a);
    a += 1;
  }
  const double d = a - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_f64(u.block()), root = 1 + c * x, v = root * root * root;
    const double w = u.uniform();
    if (v > 0 && tdm_log(w) < 0.5 * x * x + d - d * v + d * tdm_log(v)) return d * v * boost;
  }
}

// Small means by products of uniforms (Knuth); others by W. Hoermann, "The transformed rejection
// method for generating Poisson random variables", 1993.
double draw_poisson(Draws& u, double mean) {
  if (mean == 0) return 0;
  if (mean < 10) {
    const double limit = tdm_exp(-mean);
    double product = u.uniform(), k = 0;
    for (; product > limit; ++k) product *= u.uniform();
    return k;
  }
  const double b = 0.931 + 2.53 * std::sqrt(mean), a = -0.059 + 0.02483 * b;
  const double inverse = 1.1239 + 1.1328 / (b - 3.4), inside = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double x = u.uniform() - 0.5, v = u.uniform(), s = 0.5 - std::abs(x);
    if (s <= 0) continue;
    const double k = std::floor((2 * a / s + b) * x + mean + 0.43);
    if (s >= 0.07 && v <= inside) return k;
    if (k < 0 || (s < 0.013 && v > s)) continue;
    if (tdm_log(v * inverse / (a / (s * s) + b)) <= k * tdm_log(mean) - mean - tdm_lgamma(k + 1))
      return k;
  }
}

// Small means by searching the distribution function; others by W. Hoermann, "The generation of
// binomial random variates", 1993 (algorithm BTRD's rejection).
double draw_binomial(Draws& u, double n, double p) {
  if (p > 0.5) return n - draw_binomial(u, n, 1 - p);
  if (n * p == 0) return 0;
  const double q = 1 - p, r = p / q;
  if (n * p < 10) {
    while (true) {
      double w = u.uniform(), part = tdm_exp(n * tdm_log1p(-p));
      for (double k = 0; k <= n; ++k) {
        if (w <= part) return k;
        w -= part;
        part *= (n - k) * r / (k + 1);
      }
    }
  }
  const double width = std::sqrt(n * p * q), b = 1.15 + 2.53 * width;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, inside = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * width, m = std::floor((n + 1) * p);
  const double top = tdm_lgamma(m + 1) + tdm_lgamma(n - m + 1);
  while (true) {
    const double x = u.uniform() - 0.5, v = u.uniform(), s = 0.5 - std::abs(x);
    if (s <= 0) continue;
    const double k = std::floor((2 * a / s + b) * x + n * p + 0.5);
    if (k < 0 || k > n) continue;
    if (s >= 0.07 && v <= inside) return k;
    if (tdm_log(v * alpha / (a / (s * s) + b)) <=
        top - tdm_lgamma(k + 1) - tdm_lgamma(n - k + 1) + (k - m) * tdm_log(r))
      return k;
  }
}

// d z / d a of a gamma variable z: -(dF / da) / density. Below exp(digamma(a)) by the power series
// of the lower incomplete gamma function, above by the integral over the upper tail,
//   int (log(z + u) - digamma(a)) (1 + u / z)^(a - 1) exp(-u) du over u > 0;
// there all terms have one sign, so no digits cancel.
double gamma_derivative(double a, double z) {
  const double psi = tdm_digamma(a);
  if (z <= 0) return 0;
  const double log_z = tdm_log(z);
  if (a > 1e5) {  // Wilson and Hilferty: z = a (1 - 1 / (9a) + x / (3 sqrt(a)))^3 at a fixed x
    const double root = tdm_cbrt(z / a), x = (root - 1 + 1 / (9 * a)) * 3 * std::sqrt(a);
    return root * root * root +
           3 * a * root * root * (1 / (9 * a * a) - x / (6 * a * std::sqrt(a)));
  }
  if (log_z <= psi) {
    double ratio = z / a, digamma = psi + 1 / a, sum = ratio * (digamma - log_z);
    for (double n = 1; n < 1e5; ++n) {
      ratio *= z / (a + n);
      digamma += 1 / (a + n);
      const double term = ratio * (digamma - log_z);
      sum += term;
      if (term < 1e-16 * sum) break;
    }
    return sum;
  }
  // Double exponential substitution u = scale exp(w - exp(-w)).
  const double scale = std::sqrt(std::max(a, 1.0)), step = 0.125;
  double sum = 0;
  for (double w = -3.75; w < 6.5; w += step) {
    const double e = tdm_exp(-w), u = scale * tdm_exp(w - e), rate = u / z;
    const double weight = (a - 1) * tdm_log1p(rate) - u;
    if (weight < -745) break;
    sum += (tdm_log(z + u) - psi) * tdm_exp(weight) * u * (1 + e);
  }
  return sum * step;
}

// ---- rules and loops

void check_floating(const InferCall& c, int i) {
  TD_CHECK(c.has(i) && is_floating(c.in[i].dtype), DType, "{} must be a floating tensor",
           c.op.in_names[i]);
}
void sample_infer(InferCall& c) {
  for (int i = 0; i < c.n_in(); ++i) {
    check_floating(c, i);
    bool fits = c.in[i].dtype == c.in[0].dtype && c.in[i].rank() == c.in[0].rank();
    for (int d = 0; fits && d < c.in[0].rank(); ++d) fits = dims_equal(c.in[i][d], c.in[0][d]);
    TD_CHECK(fits, Shape, "{} is {}{}, {} is {}{}", c.op.in_names[0], to_string(c.in[0].dtype),
             c.in[0].shape.to_string(), c.op.in_names[i], to_string(c.in[i].dtype),
             c.in[i].shape.to_string());
  }
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
}

template <class T>
double wide(T v) {
  return static_cast<double>(static_cast<Wide<T>>(v));
}
template <class T>
T narrowed(double v) {
  return T(static_cast<Wide<T>>(v));
}

// out[i] = f(i, x[i], y[i]); y is x if there is only one input.
template <class F>
void each_element(const KernelCall& k, F&& f) {
  const Array& out = k.out[0];
  if (out.numel == 0) return;
  visit_floating(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Packed<T> x(k.in[0]), y(k.in[k.n_in > 1 ? 1 : 0]);
    detail::parallel_for_rows(out.numel, 200, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) out.as<T>()[i] = narrowed<T>(f(i, wide(x[i]), wide(y[i])));
    });
  });
}

void gamma_loops(const KernelCall& k) {
  const double least = k.out[0].dtype == DType::f64   ? std::numeric_limits<double>::min()
                       : k.out[0].dtype == DType::f16 ? 0x1p-14
                                                      : std::numeric_limits<float>::min();
  each_element(k, [&](int64_t i, double a, double) {
    if (!(a > 0 && a < HUGE_VAL)) {
      detail::report_error(k, 1, i);
      return 0.0;
    }
    Draws u(k.rng, i);
    return std::max(draw_gamma(u, a), least);
  });
}
void gamma_backward_loops(const KernelCall& k) {
  each_element(k, [](int64_t, double a, double z) { return gamma_derivative(a, z); });
}
void poisson_loops(const KernelCall& k) {
  each_element(k, [&](int64_t i, double rate, double) {
    if (!(rate >= 0 && rate < 0x1p52)) {
      detail::report_error(k, 1, i);
      return 0.0;
    }
    Draws u(k.rng, i);
    return draw_poisson(u, rate);
  });
}
void binomial_loops(const KernelCall& k) {
  each_element(k, [&](int64_t i, double n, double p) {
    if (!(n >= 0 && n < 0x1p52 && p >= 0 && p <= 1)) {
      detail::report_error(k, 1, i);
      return 0.0;
    }
    Draws u(k.rng, i);
    return draw_binomial(u, std::floor(n), p);
  });
}

void gamma_vjp(VjpCall& c) {
  const Tensor derivative = call(op::sample_gamma_backward, nullptr, c.loc(), c.in(0), c.out(0));
  c.results[0] = mul(c.grad(), derivative, c.loc());
}
void gamma_backward_vjp(VjpCall& c) {
  TD_CHECK(!c.needs(0) && !c.needs(1), Unsupported, "gamma draws only have a first derivative");
}
void same_batch(BatchCall& c) {
  const SourceLocation loc = c.node.loc;
  if (c.n_in() == 1)
    c.out[0] = call(*c.node.op, nullptr, loc, c.in[0]);
  else
    c.out[0] = call(*c.node.op, nullptr, loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}

constexpr OpDef sampling_row(const char* name, Names in) {
  return make_row(name, Family::index, Types::same, in, nullptr)
      .flops(detail::no_flops)
      .infer(sample_infer)
      .batch(same_batch);
}

}  // namespace

namespace op {
constinit const OpDef sample_gamma =
    sampling_row("sample_gamma", {"concentration"})
        .flag(kRandom | kNoBatch)
        .vjp(gamma_vjp, 1, 1)
        .reference(gamma_loops)
        .errors({"the concentration at element {} is not positive"})
        .doc("Gamma variables of rate 1.");
constinit const OpDef sample_gamma_backward =
    sampling_row("sample_gamma_backward", {"concentration", "sample"})
        .vjp(gamma_backward_vjp)
        .reference(gamma_backward_loops)
        .doc(
            "Derivative of a gamma variable with respect to its concentration, at a fixed "
            "quantile.");
constinit const OpDef poisson = sampling_row("poisson", {"rate"})
                                    .flag(kRandom | kNoBatch | kNotDifferentiable)
                                    .reference(poisson_loops)
                                    .errors({"the rate at element {} is negative or not finite"})
                                    .doc("Poisson variables: integers with a given mean.");
constinit const OpDef binomial =
    sampling_row("binomial", {"count", "prob"})
        .flag(kRandom | kNoBatch | kNotDifferentiable)
        .reference(binomial_loops)
        .errors({"the count at element {} is negative, or the probability is not in 0..1"})
        .doc("Binomial variables: how many of count trials succeed.");
}  // namespace op

std::span<const OpDef* const> sampling_rows() {
  static constexpr const OpDef* kRows[] = {&op::sample_gamma, &op::sample_gamma_backward,
                                           &op::poisson, &op::binomial};
  return kRows;
}

Tensor sample_gamma(const Tensor& concentration, SourceLocation loc) {
  return call(op::sample_gamma, nullptr, loc, concentration);
}
Tensor poisson(const Tensor& rate, SourceLocation loc) {
  return call(op::poisson, nullptr, loc, rate);
}
Tensor binomial(const Tensor& count, const Tensor& prob, SourceLocation loc) {
  return call(op::binomial, nullptr, loc, count, prob);
}

}  // namespace tandem
