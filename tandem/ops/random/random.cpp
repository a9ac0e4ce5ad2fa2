// SPDX-License-Identifier: Apache-2.0
// Random rows and functions. Every draw is a pure function of (seed, offset, element), so loops may
// run in any order on any number of threads.
#include "tandem/ops/random/random.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/random/random_kernels_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::visit_floating;
using detail::Wide;

constexpr int64_t kGrain = 8192;

void check_floating(DType t) {
  TD_CHECK(is_floating(t), DType, "expected a floating dtype, got {}", to_string(t));
}
// Calls f(element, block) for every element of a dense output.
template <class F>
void for_each_draw(const KernelCall& k, int64_t n, F&& f) {
  parallel_for(0, n, kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      f(i, philox(k.rng.seed, k.rng.offset, static_cast<uint64_t>(i)));
  });
}

// Strided positions of a row-major walk.
int64_t offset_of(const Array& a, int64_t e) {
  if (a.contiguous) return e;
  int64_t offset = 0;
  for (int i = a.rank - 1; i >= 0; --i) {
    offset += e % a.shape[i] * a.strides[i];
    e /= a.shape[i];
  }
  return offset;
}

// ---- rand, randn, randint, randperm
void rand_infer(InferCall& c) {
  const RandAttrs& a = c.get_attrs<RandAttrs>();
  check_floating(a.dtype);
  detail::check_sizes(a.shape);
  TD_CHECK(std::isfinite(a.a) && std::isfinite(a.b), Value, "bounds must be finite, got {} and {}",
           a.a, a.b);
  c.out[0] = Spec(a.dtype, a.shape);
}
void rand_check(InferCall& c) {
  rand_infer(c);
  const RandAttrs& a = c.get_attrs<RandAttrs>();
  TD_CHECK(a.a <= a.b, Value, "low {} must not be above high {}", a.a, a.b);
}
void randn_check(InferCall& c) {
  rand_infer(c);
  TD_CHECK(c.get_attrs<RandAttrs>().b >= 0, Value,
           "the standard deviation must not be negative, got {}", c.get_attrs<RandAttrs>().b);
}
void rand_loops(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  visit_floating(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    const auto low = static_cast<Wide<T>>(a.a), span = static_cast<Wide<T>>(a.b - a.a);
    for_each_draw(k, k.out[0].numel, [&](int64_t i, const PhiloxBlock& b) {
      out[i] = T(low + detail::uniform_as<T>(b) * span);
    });
  });
}
void randn_loops(const KernelCall& k) {
  const RandAttrs& a = k.get_attrs<RandAttrs>();
  visit_floating(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    const auto mean = static_cast<Wide<T>>(a.a), std = static_cast<Wide<T>>(a.b);
    for_each_draw(k, k.out[0].numel, [&](int64_t i, const PhiloxBlock& b) {
      if constexpr (std::is_same_v<T, double>)
        out[i] = mean + normal_f64(b) * std;
      else
        out[i] = T(mean + normal_f32(b) * std);
    });
  });
}

void randint_infer(InferCall& c) {
  const RandintAttrs& a = c.get_attrs<RandintAttrs>();
  detail::check_sizes(a.shape);
  TD_CHECK(a.low < a.high, Value, "low {} must be below high {}", a.low, a.high);
  const bool fits = visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, bool>)
      return a.low >= 0 && a.high <= 2;
    else if constexpr (std::is_integral_v<T>)
      return a.low >= static_cast<int64_t>(std::numeric_limits<T>::min()) &&
             a.high - 1 <= static_cast<int64_t>(std::numeric_limits<T>::max());
    else
      return true;
  });
  TD_CHECK(fits, Value, "numbers from {} to {} do not fit {}", a.low, a.high - 1,
           to_string(a.dtype));
  c.out[0] = Spec(a.dtype, a.shape);
}
void randint_loops(const KernelCall& k) {
  const RandintAttrs& a = k.get_attrs<RandintAttrs>();
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    for_each_draw(k, k.out[0].numel, [&](int64_t i, const PhiloxBlock& b) {
      out[i] = detail::scalar_as<T>(uniform_int(b, a.low, a.high));
    });
  });
}

void randperm_infer(InferCall& c) {
  const int64_t n = c.get_attrs<RandpermAttrs>().n;
  TD_CHECK(n >= 0, Value, "n must not be negative, got {}", n);
  c.out[0] = Spec(DType::i64, Shape(n));
}
// Fisher-Yates; step i uses the draw of element i.
void randperm_loops(const KernelCall& k) {
  int64_t* out = k.out[0].as<int64_t>();
  const int64_t n = k.out[0].numel;
  std::iota(out, out + n, int64_t{0});
  for (int64_t i = 0; i + 1 < n; ++i) {
    const PhiloxBlock b = philox(k.rng.seed, k.rng.offset, static_cast<uint64_t>(i));
    std::swap(out[i], out[uniform_int(b, i, n)]);
  }
}

// ---- bernoulli
void bernoulli_infer(InferCall& c) {
  check_floating(c.in[0].dtype);
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
}
void bernoulli_loops(const KernelCall& k) {
  const Array& p = k.in[0];
  visit_floating(p.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = k.out[0].as<T>();
    for_each_draw(k, p.numel, [&](int64_t i, const PhiloxBlock& b) {
      const auto v = static_cast<Wide<T>>(p.as<T>()[offset_of(p, i)]);
      if (!(v >= 0 && v <= 1)) detail::report_error(k, 1, i);
      if constexpr (std::is_same_v<T, double>)
        out[i] = uniform_f64(b.word64(0)) < v ? 1.0 : 0.0;
      else
        out[i] = T(detail::draw_below(b, v) ? 1.0f : 0.0f);
    });
  });
}
void bernoulli_batch(BatchCall& c) { c.out[0] = bernoulli(c.in[0], c.node.loc); }

// ---- dropout
void dropout_infer(InferCall& c) {
  const double p = c.get_attrs<DropoutAttrs>().p;
  check_floating(c.in[0].dtype);
  TD_CHECK(p >= 0 && p <= 1, Value, "p must be in 0..1, got {}", p);
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
  if (c.out.size() > 1) c.out[1] = Spec(DType::b8, c.in[0].shape, c.in[0].device);
}
double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }
void dropout_loops(const KernelCall& k) {
  const double p = k.get_attrs<DropoutAttrs>().p;
  const Array &x = k.in[0], &y = k.out[0];
  bool* mask = k.n_out > 1 ? k.out[1].as<bool>() : nullptr;
  const float keep = static_cast<float>(1 - p);
  visit_floating(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto scale = static_cast<Wide<T>>(scale_of(p));
    for_each_draw(k, x.numel, [&](int64_t i, const PhiloxBlock& b) {
      const bool kept = detail::draw_below(b, keep);
      const auto v = static_cast<Wide<T>>(x.as<T>()[offset_of(x, i)]);
      y.as<T>()[offset_of(y, i)] = T(kept ? v * scale : Wide<T>(0));
      if (mask) mask[i] = kept;
    });
  });
}
Tensor mask_scaled(const Tensor& g, const Tensor& mask, double p, SourceLocation loc) {
  DropoutAttrs a{p};
  return call(op::dropout_backward, &a, loc, g, mask);
}
void dropout_vjp(VjpCall& c) {
  c.results[0] = mask_scaled(c.grad(), c.out(1), c.get_attrs<DropoutAttrs>().p, c.loc());
}
void dropout_batch(BatchCall& c) {
  Operand in[] = {Operand(c.in[0], c.node.loc)};
  const DropoutAttrs a = c.get_attrs<DropoutAttrs>();
  ApplyOptions options;
  options.hidden = c.node.out.size() > 1;
  apply(op::dropout, &a, in, c.out, c.node.loc, options);
}

void dropout_backward_infer(InferCall& c) {
  check_floating(c.in[0].dtype);
  bool fits = c.in[1].dtype == DType::b8 && c.in[1].rank() == c.in[0].rank();
  for (int i = 0; fits && i < c.in[0].rank(); ++i) fits = dims_equal(c.in[0][i], c.in[1][i]);
  TD_CHECK(fits, Shape, "expected a bool mask of shape {}, got {}{}", c.in[0].shape.to_string(),
           to_string(c.in[1].dtype), c.in[1].shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
}
void dropout_backward_loops(const KernelCall& k) {
  const Array &g = k.in[0], &mask = k.in[1], &y = k.out[0];
  const double p = k.get_attrs<DropoutAttrs>().p;
  visit_floating(g.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto scale = static_cast<Wide<T>>(scale_of(p));
    parallel_for(0, g.numel, kGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        const auto v = static_cast<Wide<T>>(g.as<T>()[offset_of(g, i)]);
        y.as<T>()[offset_of(y, i)] =
            T(mask.as<bool>()[offset_of(mask, i)] ? v * scale : Wide<T>(0));
      }
    });
  });
}
void dropout_backward_vjp(VjpCall& c) {
  c.results[0] = mask_scaled(c.grad(), c.in(1), c.get_attrs<DropoutAttrs>().p, c.loc());
}
void dropout_backward_batch(BatchCall& c) {
  c.out[0] = mask_scaled(detail::with_batch(c, 0), detail::with_batch(c, 1),
                         c.get_attrs<DropoutAttrs>().p, c.node.loc);
}

// ---- multinomial
void multinomial_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const MultinomialAttrs& a = c.get_attrs<MultinomialAttrs>();
  check_floating(x.dtype);
  TD_CHECK(x.rank() == 1 || x.rank() == 2, Shape, "expected weights of 1 or 2 dimensions, got {}",
           x.shape.to_string());
  const Dim n = x.shape.back();
  TD_CHECK(n.is_symbolic() || n.raw() > 0, Shape, "expected at least one weight per row, got {}",
           x.shape.to_string());
  TD_CHECK(a.num_samples > 0, Value, "num_samples must be positive, got {}", a.num_samples);
  TD_CHECK(a.replacement || n.is_symbolic() || a.num_samples <= n.raw(), Value,
           "{} samples of {} without replacement\nPass replacement = true.", a.num_samples,
           n.to_string());
  Shape out = x.shape;
  out[out.rank() - 1] = a.num_samples;
  c.out[0] = Spec(DType::i64, out, x.device);
}
// With replacement: the inverse of the running sum, one draw per sample. Without: the samples with
// the smallest Exp(1) / weight, one draw per weight (Efraimidis and Spirakis).
void sample_row(const KernelCall& k, const std::vector<double>& w, int64_t row, int64_t n,
                int64_t* out) {
  const uint64_t first = static_cast<uint64_t>(row);
  const auto size = static_cast<int64_t>(w.size());
  if (k.get_attrs<MultinomialAttrs>().replacement) {
    std::vector<double> sum(w.size());
    std::partial_sum(w.begin(), w.end(), sum.begin());
    for (int64_t s = 0; s < n; ++s) {
      const uint64_t e = first * static_cast<uint64_t>(n) + static_cast<uint64_t>(s);
      const double u = uniform_f64(philox(k.rng.seed, k.rng.offset, e).word64(0)) * sum.back();
      int64_t at = std::upper_bound(sum.begin(), sum.end(), u) - sum.begin();
      // Rounding may end at the total: take the last nonzero weight.
      if (at >= size) at = size - 1;
      while (at > 0 && w[static_cast<size_t>(at)] == 0) --at;
      out[s] = at;
    }
    return;
  }
  std::vector<std::pair<double, int64_t>> keys;
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t e = first * static_cast<uint64_t>(size) + static_cast<uint64_t>(i);
    const double u = 1.0 - uniform_f64(philox(k.rng.seed, k.rng.offset, e).word64(0));
    keys.emplace_back(
        w[static_cast<size_t>(i)] > 0 ? -tdm_log(u) / w[static_cast<size_t>(i)] : HUGE_VAL, i);
  }
  std::partial_sort(keys.begin(), keys.begin() + n, keys.end());
  for (int64_t s = 0; s < n; ++s) out[s] = keys[static_cast<size_t>(s)].second;
}
void multinomial_loops(const KernelCall& k) {
  const MultinomialAttrs& a = k.get_attrs<MultinomialAttrs>();
  const Array& x = k.in[0];
  const int64_t n = x.shape[x.rank - 1], rows = x.numel / n;
  visit_floating(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e) {
      std::vector<double> w(static_cast<size_t>(n));
      for (int64_t r = b; r < e; ++r) {
        double sum = 0;
        int64_t positive = 0;
        bool valid = true;
        for (int64_t i = 0; i < n; ++i) {
          double v = static_cast<double>(static_cast<Wide<T>>(x.as<T>()[offset_of(x, r * n + i)]));
          valid &= v >= 0 && v < HUGE_VAL;
          if (!(v >= 0 && v < HUGE_VAL)) v = 0;
          positive += v > 0;
          sum += v;
          w[static_cast<size_t>(i)] = v;
        }
        if (!valid) detail::report_error(k, 1, r);
        if (sum <= 0 || (!a.replacement && positive < a.num_samples)) detail::report_error(k, 2, r);
        sample_row(k, w, r, a.num_samples, k.out[0].as<int64_t>() + r * a.num_samples);
      }
    });
  });
}

constexpr OpDef random_row(OpDef r) { return r.flag(kRandom | kNoBatch).flops(detail::no_flops); }

}  // namespace

namespace op {
constinit const OpDef rand = random_row(create_row("rand", fields<RandAttrs>()))
                                 .flag(kNotDifferentiable)
                                 .infer(rand_check)
                                 .reference(rand_loops)
                                 .doc("Uniform numbers from a (included) to b (not included).");
constinit const OpDef randn = random_row(create_row("randn", fields<RandAttrs>()))
                                  .flag(kNotDifferentiable)
                                  .infer(randn_check)
                                  .reference(randn_loops)
                                  .doc("Normal numbers of mean a and standard deviation b.");
constinit const OpDef randint =
    random_row(create_row("randint", fields<RandintAttrs>()))
        .flag(kNotDifferentiable)
        .infer(randint_infer)
        .reference(randint_loops)
        .doc("Integers from low (included) to high (not included), all equally likely.");
constinit const OpDef randperm = random_row(create_row("randperm", fields<RandpermAttrs>()))
                                     .flag(kNotDifferentiable)
                                     .infer(randperm_infer)
                                     .reference(randperm_loops)
                                     .doc("0 .. n - 1 in random order.");
constinit const OpDef bernoulli = random_row(index_row("bernoulli", {"p"}))
                                      .flag(kNotDifferentiable)
                                      .infer(bernoulli_infer)
                                      .batch(bernoulli_batch)
                                      .reference(bernoulli_loops)
                                      .errors({"the probability at element {} is not in 0..1"})
                                      .doc("1 with probability p, else 0.");
constinit const OpDef dropout =
    random_row(index_row("dropout", {"x"}, fields<DropoutAttrs>()))
        .outputs({"y", "mask!"})
        .flag(kReuseFirst)
        .infer(dropout_infer)
        .vjp(dropout_vjp, 0, 1u << 1)
        .batch(dropout_batch)
        .reference(dropout_loops)
        .doc("x / (1 - p) with probability 1 - p, else 0, for each element.");
constinit const OpDef dropout_backward =
    index_row("dropout_backward", {"g", "mask"}, fields<DropoutAttrs>())
        .flag(kReuseFirst)
        .infer(dropout_backward_infer)
        .vjp(dropout_backward_vjp, 1u << 1)
        .batch(dropout_backward_batch)
        .reference(dropout_backward_loops)
        .flops(detail::no_flops)
        .doc("g / (1 - p) where mask, else 0: the derivative of dropout.");
constinit const OpDef multinomial =
    random_row(index_row("multinomial", {"weights"}, fields<MultinomialAttrs>()))
        .flag(kNotDifferentiable)
        .infer(multinomial_infer)
        .reference(multinomial_loops)
        .errors({"row {} has a weight that is negative, infinite or NaN",
                 "row {} has too few weights above 0"})
        .doc("Indices drawn with probability proportional to their weights.");
}  // namespace op

std::span<const OpDef* const> random_rows() {
  static constexpr const OpDef* kRows[] = {
      &op::rand,      &op::randn,   &op::randint,          &op::randperm,
      &op::bernoulli, &op::dropout, &op::dropout_backward, &op::multinomial,
  };
  return kRows;
}

// ---- functions
Tensor uniform(Shape shape, double low, double high, DType dtype, SourceLocation loc) {
  RandAttrs a{shape, low, high, dtype};
  return detail::named("uniform", loc, [&] { return call(op::rand, &a, loc); });
}
Tensor rand(Shape shape, DType dtype, SourceLocation loc) {
  return detail::named("rand", loc, [&] { return uniform(shape, 0, 1, dtype, loc); });
}
Tensor rand_like(const Tensor& x, SourceLocation loc) {
  return detail::named("rand_like", loc, [&] {
    const DeviceGuard there(x.device());
    return rand(x.shape(), x.dtype(), loc);
  });
}
Tensor normal(double mean, double std, Shape shape, DType dtype, SourceLocation loc) {
  RandAttrs a{shape, mean, std, dtype};
  return detail::named("normal", loc, [&] { return call(op::randn, &a, loc); });
}
Tensor randn(Shape shape, DType dtype, SourceLocation loc) {
  return detail::named("randn", loc, [&] { return normal(0, 1, shape, dtype, loc); });
}
Tensor randn_like(const Tensor& x, SourceLocation loc) {
  return detail::named("randn_like", loc, [&] {
    const DeviceGuard there(x.device());
    return randn(x.shape(), x.dtype(), loc);
  });
}
Tensor randint(int64_t low, int64_t high, Shape shape, DType dtype, SourceLocation loc) {
  RandintAttrs a{shape, low, high, dtype};
  return call(op::randint, &a, loc);
}
Tensor randint(int64_t high, Shape shape, DType dtype, SourceLocation loc) {
  return randint(0, high, shape, dtype, loc);
}
Tensor randperm(int64_t n, SourceLocation loc) {
  RandpermAttrs a{n};
  return call(op::randperm, &a, loc);
}
Tensor bernoulli(const Tensor& p, SourceLocation loc) {
  return detail::named("bernoulli", loc, [&] { return call(op::bernoulli, nullptr, loc, p); });
}
Tensor bernoulli(const Tensor& x, double p, SourceLocation loc) {
  return detail::named("bernoulli", loc, [&] {
    TD_CHECK(p >= 0 && p <= 1, Value, "p must be in 0..1, got {}", p);
    return bernoulli(full_like(x, p, loc), loc);
  });
}
Tensor dropout(Tensor x, double p, bool training, SourceLocation loc) {
  detail::placed("dropout", loc,
                 [&] { TD_CHECK(p >= 0 && p <= 1, Value, "p must be in 0..1, got {}", p); });
  if (!training || p == 0) return x;
  DropoutAttrs a{p};
  return call(op::dropout, &a, loc, std::move(x));
}
Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement, SourceLocation loc) {
  MultinomialAttrs a{num_samples, replacement};
  return call(op::multinomial, &a, loc, input);
}

}  // namespace tandem
