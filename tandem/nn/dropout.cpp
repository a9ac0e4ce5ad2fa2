// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/dropout.h"

#include <cmath>

#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn {
namespace {

void check_p(double p, const char* type) {
  TD_CHECK(p >= 0 && p <= 1, Value, "{} wants a probability in 0..1, got {}", type, p);
}

// The first `kept` sizes of x, followed by ones.
Shape leading(const Tensor& x, int kept) {
  Shape s = x.shape();
  for (int i = kept; i < s.rank(); ++i) s[i] = 1;
  return s;
}

Tensor drop_groups(Tensor x, double p, int kept) {
  if (p == 0) return x;
  Tensor mask = dropout(ones(leading(x, kept), x.dtype()), p, true);
  return std::move(x) * mask;
}

Tensor alpha_dropout(Tensor x, double p, Shape groups) {
  if (p == 0) return x;
  if (p == 1) return x * 0.0;
  constexpr double kLow = -1.7580993408473766;
  double a = 1 / std::sqrt((1 - p) * (1 + p * kLow * kLow)), b = -a * p * kLow;
  Tensor keep = bernoulli(full(groups, 1 - p, DType::f32)) > 0.5;
  return where(keep, std::move(x), kLow) * a + b;
}

}  // namespace

#define X(name, rank, text)                                                  \
  name::name(double p) : p(p) {                                              \
    check_p(p, #name);                                                       \
    this->register_members(this, "");                                        \
  }                                                                          \
  Tensor name::forward(Tensor x) {                                           \
    TD_CHECK(x.dim() == rank || x.dim() == rank - 1, Shape,                  \
             "{} wants {} or {} dimensions, x is {}", #name, rank - 1, rank, \
             x.shape().to_string());                                         \
    if (!is_training()) return x;                                            \
    int kept = x.dim() == rank ? 2 : 1;                                      \
    return drop_groups(std::move(x), p, kept);                               \
  }
TD_FOR_EACH_CHANNEL_DROPOUT(X)
#undef X

AlphaDropout::AlphaDropout(double p) : p(p) {
  check_p(p, "AlphaDropout");
  this->register_members(this, "");
}
Tensor AlphaDropout::forward(Tensor x) {
  if (!is_training()) return x;
  Shape s = x.shape();
  return alpha_dropout(std::move(x), p, s);
}

FeatureAlphaDropout::FeatureAlphaDropout(double p) : p(p) {
  check_p(p, "FeatureAlphaDropout");
  this->register_members(this, "");
}
Tensor FeatureAlphaDropout::forward(Tensor x) {
  TD_CHECK(x.dim() >= 2, Shape, "FeatureAlphaDropout wants [n, c, ...], x is {}",
           x.shape().to_string());
  if (!is_training()) return x;
  Shape s = leading(x, 2);
  return alpha_dropout(std::move(x), p, s);
}

DropPath::DropPath(double p) : p(p) {
  check_p(p, "DropPath");
  this->register_members(this, "");
}
Tensor DropPath::forward(Tensor x) {
  if (!is_training()) return x;
  TD_CHECK(x.dim() >= 1, Shape, "DropPath wants a batch, x is 0-d");
  return drop_groups(std::move(x), p, 1);
}

}  // namespace tandem::nn
