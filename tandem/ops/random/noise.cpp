// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/random/noise.h"

#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"

namespace tandem {
namespace {

using detail::composed;

void check_p(double p) {
  TD_CHECK(p >= 0 && p <= 1, Value, "the probability is {}, it must be in 0..1", p);
}

// The first `kept` sizes of x, followed by ones.
Shape leading_sizes(const Tensor& x, int kept) {
  Shape s = x.shape();
  for (int i = kept; i < s.rank(); ++i) s[i] = 1;
  return s;
}

Tensor drop_channels(const char* name, int d, Tensor x, double p, bool training,
                     SourceLocation loc) {
  return composed(name, loc, x, [&] {
    check_p(p);
    TD_CHECK(x.dim() == d + 2 || x.dim() == d + 1, Shape, "expected {} or {} dimensions, x is {}",
             d + 1, d + 2, x.shape().to_string());
    if (!training || p == 0) return x;
    return x * dropout(ones(leading_sizes(x, x.dim() - d), x.dtype()), p, true);
  });
}

Tensor drop_to_limit(Tensor x, double p, Shape groups) {
  if (p == 0) return x;
  if (p == 1) return x * 0.0;
  constexpr double kLow = -1.7580993408473766;  // of SELU: -scale * alpha
  const double a = 1 / std::sqrt((1 - p) * (1 + p * kLow * kLow)), b = -a * p * kLow;
  const Tensor keep = bernoulli(full(groups, 1 - p, DType::f32)) > 0.5;
  return where(keep, std::move(x), kLow) * a + b;
}

}  // namespace

Tensor dropout1d(Tensor x, double p, bool training, SourceLocation loc) {
  return drop_channels("dropout1d", 1, std::move(x), p, training, loc);
}
Tensor dropout2d(Tensor x, double p, bool training, SourceLocation loc) {
  return drop_channels("dropout2d", 2, std::move(x), p, training, loc);
}
Tensor dropout3d(Tensor x, double p, bool training, SourceLocation loc) {
  return drop_channels("dropout3d", 3, std::move(x), p, training, loc);
}
Tensor alpha_dropout(Tensor x, double p, bool training, SourceLocation loc) {
  return composed("alpha_dropout", loc, x, [&] {
    check_p(p);
    const Shape s = x.shape();
    return training ? drop_to_limit(std::move(x), p, s) : x;
  });
}
Tensor feature_alpha_dropout(Tensor x, double p, bool training, SourceLocation loc) {
  return composed("feature_alpha_dropout", loc, x, [&] {
    check_p(p);
    TD_CHECK(x.dim() >= 2, Shape, "expected [n, c, ...], x is {}", x.shape().to_string());
    const Shape s = leading_sizes(x, 2);
    return training ? drop_to_limit(std::move(x), p, s) : x;
  });
}
Tensor rrelu(Tensor x, double lower, double upper, bool training, SourceLocation loc) {
  return composed("rrelu", loc, [&] {
    TD_CHECK(lower <= upper, Value, "expected lower <= upper, got {} and {}", lower, upper);
    if (!training) return leaky_relu(std::move(x), (lower + upper) / 2);
    const Tensor factor = rand_like(x.detach()) * (upper - lower) + lower;
    return where(x > 0, x, x * factor);
  });
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, double, int64_t dim,
                      SourceLocation loc) {
  return composed("gumbel_softmax", loc, [&] {
    TD_CHECK(is_floating(logits.dtype()), DType, "logits are {}, expected a floating dtype",
             to_string(logits.dtype()));
    // In 1 - rand the number 0, whose logarithm is infinite, does not occur.
    const Tensor noise = -log(-log1p(-rand_like(logits.detach())));
    const Tensor soft = softmax((logits + noise) / tau, dim);
    if (!hard) return soft;
    const Tensor best = max(soft.detach(), dim, true).indices;
    const Tensor one = scatter(zeros_like(logits), dim, best, 1.0);
    return one - soft.detach() + soft;
  });
}

Tensor randint_like(const Tensor& x, int64_t low, int64_t high, SourceLocation loc) {
  return detail::named("randint_like", loc, [&] {
    return randint(low, high, x.shape(), DType::i64, loc).to(x.dtype(), loc);
  });
}
Tensor randint_like(const Tensor& x, int64_t high, SourceLocation loc) {
  return detail::named("randint_like", loc, [&] { return randint_like(x, 0, high, loc); });
}

}  // namespace tandem
