// SPDX-License-Identifier: Apache-2.0
// Draws that take an unknown number of uniform ones: gamma, Poisson, binomial and multinomial
// variables by the algorithms of ops/random, a thread an element (or a row), in f64 as there.
#include <limits>

#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"

namespace tandem::gpu {
namespace {

// td_draws: a stream of numbers for one element; td_open() is uniform in (0, 1].
constexpr const char* kDrawsText =
    R"td_text(
typedef struct { td_u64 seed, element; td_u32 offset, draw; } td_draws;
TDM_FN td_block_of_words td_next(td_draws* u) {
  return td_philox(u->seed, u->offset, u->element, u->draw++);
}
TDM_FN double td_open(td_draws* u) {
  const td_block_of_words b = td_next(u);
  return 1.0 - td_uniform_f64(td_word64(b.w0, b.w1));
}
)td_text";

constexpr const char* kDrawsOfMeText =
    "  td_draws u;\n  u.seed = TD_SEED;\n  u.element = (td_u64)me;\n"
    "  u.offset = TD_OFFSET;\n  u.draw = 0;\n";

constexpr DenseKernel kGamma{.name = "sample_gamma",
                             .functions = {kDrawsText, R"td_text(
TDM_FN double td_draw_gamma(td_draws* u, double a) {
  double boost = 1, d, c;
  if (a < 1) {
    boost = tdm_exp(tdm_log(td_open(u)) / a);
    a += 1;
  }
  d = a - 1.0 / 3;
  c = 1 / tdm_sqrt(9 * d);
  for (;;) {
    const double x = td_normal_f64(td_next(u)), root = 1 + c * x, v = root * root * root;
    const double w = td_open(u);
    if (v > 0 && tdm_log(w) < 0.5 * x * x + d - d * v + d * tdm_log(v)) return d * v * boost;
  }
}
)td_text"},
                             .reports = true,
                             .body = {kDrawsOfMeText, R"td_text(
  const td_f64 a = I0(me);
  td_f64 v = 0;
  if (a > 0 && a < tdmi_inf()) {
    v = td_draw_gamma(&u, a);
    v = v < least ? least : v;
  } else {
    td_report(1, me);
  }
  P0(me, (TO0)v);
)td_text"}};

// The algorithms of draw_poisson() and draw_binomial().
constexpr DenseKernel kPoisson{.name = "poisson",
                               .functions = {kDrawsText, R"td_text(
TDM_FN double td_draw_poisson(td_draws* u, double mean) {
  double a, b, inverse, inside;
  if (mean == 0) return 0;
  if (mean < 10) {
    const double limit = tdm_exp(-mean);
    double product = td_open(u), k = 0;
    for (; product > limit; ++k) product *= td_open(u);
    return k;
  }
  b = 0.931 + 2.53 * tdm_sqrt(mean);
  a = -0.059 + 0.02483 * b;
  inverse = 1.1239 + 1.1328 / (b - 3.4);
  inside = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double x = td_open(u) - 0.5, v = td_open(u), s = 0.5 - tdmi_abs(x);
    double k;
    if (s <= 0) continue;
    k = tdo_floor_d((2 * a / s + b) * x + mean + 0.43);
    if (s >= 0.07 && v <= inside) return k;
    if (k < 0 || (s < 0.013 && v > s)) continue;
    if (tdm_log(v * inverse / (a / (s * s) + b)) <=
        k * tdm_log(mean) - mean - tdm_lgamma(k + 1))
      return k;
  }
}
)td_text"},
                               .reports = true,
                               .body = {kDrawsOfMeText, R"td_text(
  const td_f64 rate = I0(me);
  td_f64 v = 0;
  if (rate >= 0 && rate < 0x1p52)
    v = td_draw_poisson(&u, rate);
  else
    td_report(1, me);
  P0(me, (TO0)v);
)td_text"}};

constexpr DenseKernel kBinomial{.name = "binomial",
                                .functions = {kDrawsText, R"td_text(
TDM_FN double td_draw_binomial(td_draws* u, double n, double p) {
  const double q = 1 - p, r = p / q, m = tdo_floor_d((n + 1) * p);
  double width, b, a, inside, alpha, top;
  if (n * p == 0) return 0;
  if (n * p < 10) {
    for (;;) {
      double w = td_open(u), part = tdm_exp(n * tdm_log1p(-p)), k;
      for (k = 0; k <= n; ++k) {
        if (w <= part) return k;
        w -= part;
        part *= (n - k) * r / (k + 1);
      }
    }
  }
  width = tdm_sqrt(n * p * q);
  b = 1.15 + 2.53 * width;
  a = -0.0873 + 0.0248 * b + 0.01 * p;
  inside = 0.92 - 4.2 / b;
  alpha = (2.83 + 5.1 / b) * width;
  top = tdm_lgamma(m + 1) + tdm_lgamma(n - m + 1);
  for (;;) {
    const double x = td_open(u) - 0.5, v = td_open(u), s = 0.5 - tdmi_abs(x);
    double k;
    if (s <= 0) continue;
    k = tdo_floor_d((2 * a / s + b) * x + n * p + 0.5);
    if (k < 0 || k > n) continue;
    if (s >= 0.07 && v <= inside) return k;
    if (tdm_log(v * alpha / (a / (s * s) + b)) <=
        top - tdm_lgamma(k + 1) - tdm_lgamma(n - k + 1) + (k - m) * tdm_log(r))
      return k;
  }
}
)td_text"},
                                .reports = true,
                                .body = {kDrawsOfMeText, R"td_text(
  const td_f64 n = I0(me), p = I1(me);
  td_f64 v = 0;
  if (n >= 0 && n < 0x1p52 && p >= 0 && p <= 1) {
    const td_f64 whole = tdo_floor_d(n);
    v = p > 0.5 ? whole - td_draw_binomial(&u, whole, 1 - p) : td_draw_binomial(&u, whole, p);
  } else {
    td_report(1, me);
  }
  P0(me, (TO0)v);
)td_text"}};

// gamma_derivative() of ops/random/sampling.cpp, which says where it comes from.
constexpr DenseKernel kGammaBackward{
    .name = "sample_gamma_backward",
    .functions = {R"td_text(
TDM_FN double td_gamma_derivative(double a, double z) {
  const double psi = tdm_digamma(a), log_z = tdm_log(z);
  double sum = 0, scale, w;
  if (z <= 0) return 0;
  if (a > 1e5) {
    const double root = tdm_cbrt(z / a), x = (root - 1 + 1 / (9 * a)) * 3 * tdm_sqrt(a);
    return root * root * root +
           3 * a * root * root * (1 / (9 * a * a) - x / (6 * a * tdm_sqrt(a)));
  }
  if (log_z <= psi) {
    double ratio = z / a, digamma = psi + 1 / a, n;
    sum = ratio * (digamma - log_z);
    for (n = 1; n < 1e5; ++n) {
      double term;
      ratio *= z / (a + n);
      digamma += 1 / (a + n);
      term = ratio * (digamma - log_z);
      sum += term;
      if (term < 1e-16 * sum) break;
    }
    return sum;
  }
  scale = tdm_sqrt(a > 1.0 ? a : 1.0);
  for (w = -3.75; w < 6.5; w += 0.125) {
    const double e = tdm_exp(-w), v = scale * tdm_exp(w - e), rate = v / z;
    const double weight = (a - 1) * tdm_log1p(rate) - v;
    if (weight < -745) break;
    sum += (tdm_log(z + v) - psi) * tdm_exp(weight) * v * (1 + e);
  }
  return sum * 0.125;
}
)td_text"},
    .body = {"  P0(me, (TO0)td_gamma_derivative(I0(me), I1(me)));\n"}};

void run_gamma(const KernelCall& c) {
  const DType t = c.out[0].dtype;
  const double least = t == DType::f64   ? std::numeric_limits<double>::min()
                       : t == DType::f16 ? 0x1p-14
                                         : std::numeric_limits<float>::min();
  DenseCall(c).draws().number("least", least).run(kGamma, c.out[0].numel);
}
void run_poisson(const KernelCall& c) { DenseCall(c).draws().run(kPoisson, c.out[0].numel); }
void run_binomial(const KernelCall& c) { DenseCall(c).draws().run(kBinomial, c.out[0].numel); }
void run_gamma_backward(const KernelCall& c) { DenseCall(c).run(kGammaBackward, c.out[0].numel); }

// ---- multinomial: `work` holds for each row its running sums, or its keys

// A weight that is not a number is 0.
constexpr const char* kWeightsText =
    R"td_text(
#define WEIGHT(i) (I0(me * n + (i)) >= 0 && I0(me * n + (i)) < tdmi_inf() ? (td_f64)I0(me * n + (i)) : 0)
  td_f64 sum = 0;
  td_i64 positive = 0;
  td_i32 valid = 1;
  for (td_i64 i = 0; i < n; ++i) {
    valid = valid && I0(me * n + i) >= 0 && I0(me * n + i) < tdmi_inf();
    positive += WEIGHT(i) > 0 ? 1 : 0;
    sum += WEIGHT(i);
    work[me * n + i] = sum;
  }
  if (!valid) td_report(1, me);
  if (sum <= 0 || positive < wanted) td_report(2, me);
)td_text";

constexpr DenseKernel kMultinomial{
    .name = "multinomial", .reports = true, .body = {kWeightsText, R"td_text(
  for (td_i64 s = 0; s < samples; ++s) {
    const td_block_of_words b = td_philox(TD_SEED, TD_OFFSET, (td_u64)(me * samples + s), 0);
    const td_f64 v = td_uniform_f64(td_word64(b.w0, b.w1)) * sum;
    td_i64 low = 0, left = n;
    while (left > 0) {
      const td_i64 middle = left / 2;
      if (!(v < work[me * n + low + middle])) {
        low += middle + 1;
        left -= middle + 1;
      } else {
        left = middle;
      }
    }
    if (low >= n) low = n - 1;
    while (low > 0 && WEIGHT(low) == 0) --low;
    P0(me * samples + s, low);
  }
#undef WEIGHT
)td_text"}};

constexpr DenseKernel kMultinomialKeys{
    .name = "multinomial_keys", .reports = true, .body = {kWeightsText, R"td_text(
  for (td_i64 k = 0; k < n; ++k) {
    const td_block_of_words b = td_philox(TD_SEED, TD_OFFSET, (td_u64)(me * n + k), 0);
    const td_f64 v = 1.0 - td_uniform_f64(td_word64(b.w0, b.w1));
    work[me * n + k] = WEIGHT(k) > 0 ? -tdm_log(v) / WEIGHT(k) : tdmi_inf();
  }
#undef WEIGHT
)td_text"}};

// A thread a key: its place among the keys of its row is how many are smaller.
constexpr DenseKernel kMultinomialPlaces{.name = "multinomial_places", .body = {R"td_text(
  const td_i64 i = me % n, first = me / n * n;
  const td_f64 own = work[me];
  td_i64 place = 0;
  for (td_i64 k = 0; k < n; ++k) {
    place += work[first + k] < own || (work[first + k] == own && k < i) ? 1 : 0;
  }
  if (place < samples) P0(me / n * samples + place, i);
)td_text"}};

std::shared_ptr<const Plan> prepare_multinomial(const KernelCall& c) {
  return plan_dense(c, {static_cast<size_t>(c.in[0].numel) * sizeof(double)});
}
void run_multinomial(const KernelCall& c) {
  const auto& a = c.get_attrs<MultinomialAttrs>();
  const Array& x = c.in[0];
  if (x.numel == 0) return;
  const int64_t n = x.shape[x.rank - 1], rows = x.numel / n;
  DenseCall call(c);
  call.draws().number("n", n).number("samples", a.num_samples);
  call.number("wanted", a.replacement ? int64_t{0} : a.num_samples);
  call.scratch("work", DType::f64, x.numel);
  if (a.replacement) return call.run(kMultinomial, rows);
  call.run(kMultinomialKeys, rows);
  call.run(kMultinomialPlaces, x.numel);
}

}  // namespace

void register_sampling(DeviceKind kind) {
  register_kernel(kind, op::sample_gamma, {has_f64, nullptr, prepare_dense, run_gamma});
  register_kernel(kind, op::sample_gamma_backward,
                  {has_f64, nullptr, prepare_dense, run_gamma_backward});
  register_kernel(kind, op::poisson, {has_f64, nullptr, prepare_dense, run_poisson});
  register_kernel(kind, op::binomial, {has_f64, nullptr, prepare_dense, run_binomial});
  register_kernel(kind, op::multinomial, {has_f64, nullptr, prepare_multinomial, run_multinomial});
}

}  // namespace tandem::gpu
