// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/graph/context.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn::init {

Tensor uniform(Shape shape, double low, double high, DType dtype) {
  NoGradGuard no_grad;
  return tandem::uniform(shape, low, high, dtype);
}

Tensor normal(Shape shape, double mean, double std, DType dtype) {
  NoGradGuard no_grad;
  return tandem::normal(mean, std, shape, dtype);
}

std::pair<int64_t, int64_t> fans(const Shape& shape) {
  TD_CHECK(shape.rank() >= 2, Shape, "fan in and fan out expect at least 2 dimensions, got {}",
           shape.to_string());
  int64_t window = 1;
  for (int i = 2; i < shape.rank(); ++i) window *= shape[i].value();
  return {shape[1].value() * window, shape[0].value() * window};
}

Tensor fan_in_uniform(Shape shape, int64_t fan_in, DType dtype) {
  double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return init::uniform(shape, -bound, bound, dtype);
}

namespace {

double kaiming_std(const Shape& shape, double a, const KaimingOptions& o) {
  TD_CHECK(o.mode == "fan_in" || o.mode == "fan_out", Value,
           "mode is \"fan_in\" or \"fan_out\", got \"{}\"", o.mode);
  auto [in, out] = fans(shape);
  double fan = static_cast<double>(std::max<int64_t>(o.mode == "fan_in" ? in : out, 1));
  return calculate_gain(o.nonlinearity, a) / std::sqrt(fan);
}

void check_matrix(const Shape& shape, const char* name) {
  TD_CHECK(shape.rank() == 2, Shape, "{} expects a matrix, got {}", name, shape.to_string());
}

}  // namespace

double calculate_gain(const std::string& f, double param) {
  if (f == "linear" || f == "sigmoid" || f.rfind("conv", 0) == 0) return 1;
  if (f == "tanh") return 5.0 / 3;
  if (f == "relu") return std::sqrt(2.0);
  if (f == "leaky_relu") return std::sqrt(2 / (1 + param * param));
  if (f == "selu") return 0.75;
  TD_FAIL(Value,
          "unknown nonlinearity '{}'\nKnown are linear, conv1d, conv2d, conv3d, sigmoid, "
          "tanh, relu, leaky_relu and selu.",
          f);
}

Tensor kaiming_uniform(Shape shape, double a, DType dtype, const KaimingOptions& o) {
  double bound = std::sqrt(3.0) * kaiming_std(shape, a, o);
  return init::uniform(shape, -bound, bound, dtype);
}

Tensor kaiming_normal(Shape shape, double a, DType dtype, const KaimingOptions& o) {
  return init::normal(shape, 0, kaiming_std(shape, a, o), dtype);
}

Tensor lecun_uniform(Shape shape, DType dtype) {
  double bound = std::sqrt(3 / static_cast<double>(std::max<int64_t>(fans(shape).first, 1)));
  return init::uniform(shape, -bound, bound, dtype);
}

Tensor lecun_normal(Shape shape, DType dtype) {
  return init::normal(
      shape, 0, 1 / std::sqrt(static_cast<double>(std::max<int64_t>(fans(shape).first, 1))), dtype);
}

Tensor constant(Shape shape, double value, DType dtype) { return full(shape, value, dtype); }

Tensor trunc_normal(Shape shape, double mean, double std, double a, double b, DType dtype) {
  NoGradGuard no_grad;
  TD_CHECK(std > 0 && a < b, Value, "trunc_normal expects std > 0 and a < b, got {}, {} and {}",
           std, a, b);
  // 2 P(x) - 1 is uniform between its values at the ends.
  const auto end = [&](double x) { return std::erf((x - mean) / (std * std::sqrt(2.0))); };
  Tensor u = tandem::uniform(shape, end(a), end(b), DType::f64);
  return clamp(erfinv(u) * (std * std::sqrt(2.0)) + mean, a, b).to(dtype);
}

Tensor eye(Shape shape, DType dtype) {
  check_matrix(shape, "eye");
  return tandem::eye(shape[0].value(), shape[1].value(), dtype);
}

Tensor dirac(Shape shape, int64_t groups, DType dtype) {
  TD_CHECK(shape.rank() >= 3 && shape.rank() <= 5, Shape,
           "dirac expects a weight of 3, 4 or 5 dimensions, got {}", shape.to_string());
  int64_t out = shape[0].value(), in = shape[1].value();
  TD_CHECK(groups > 0 && out % groups == 0, Value, "groups = {} must divide {} channels", groups,
           out);
  std::vector<float> v(static_cast<size_t>(shape.numel().value()), 0.0f);
  int64_t window = 1, centre = 0, per_group = out / groups;
  for (int i = 2; i < shape.rank(); ++i) {
    centre = centre * shape[i].value() + shape[i].value() / 2;
    window *= shape[i].value();
  }
  for (int64_t o = 0; o < out; ++o)
    if (o % per_group < in) v[static_cast<size_t>((o * in + o % per_group) * window + centre)] = 1;
  return tensor(v, shape).to(dtype);
}

Tensor orthogonal(Shape shape, double gain, DType dtype) {
  TD_CHECK(shape.rank() >= 2, Shape, "orthogonal expects at least 2 dimensions, got {}",
           shape.to_string());
  int64_t rows = shape[0].value(), columns = 1;
  for (int i = 1; i < shape.rank(); ++i) columns *= shape[i].value();
  NoGradGuard no_grad;
  bool wide = rows < columns;
  // Gram-Schmidt, twice, over the shorter side; the vectors are rows of `v`.
  int64_t n = wide ? rows : columns, m = wide ? columns : rows;
  std::vector<double> v = randn({n, m}, DType::f64).to_vector<double>();
  for (int64_t i = 0; i < n; ++i) {
    double* a = v.data() + i * m;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t k = 0; k < i; ++k) {
        const double* b = v.data() + k * m;
        double d = std::inner_product(a, a + m, b, 0.0);
        for (int64_t j = 0; j < m; ++j) a[j] -= d * b[j];
      }
    double length = std::sqrt(std::inner_product(a, a + m, a, 0.0));
    for (int64_t j = 0; j < m; ++j) a[j] /= length;
  }
  Tensor q = tensor(v, {n, m});
  if (!wide) q = q.t();
  return (q * gain).reshape(shape).to(dtype);
}

Tensor sparse(Shape shape, double sparsity, double std, DType dtype) {
  check_matrix(shape, "sparse");
  TD_CHECK(sparsity >= 0 && sparsity <= 1, Value, "sparsity expects 0..1, got {}", sparsity);
  NoGradGuard no_grad;
  int64_t rows = shape[0].value();
  auto zero = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  // Each column's rows in random order; the first `zero` of them are set to zero.
  Tensor rank = argsort(argsort(tandem::uniform(shape, 0, 1), 0), 0);
  return where(rank < zero, full({}, 0.0, dtype), init::normal(shape, 0, std, dtype));
}

Tensor xavier_uniform(Shape shape, double gain, DType dtype) {
  auto [in, out] = fans(shape);
  double bound = gain * std::sqrt(6 / static_cast<double>(in + out));
  return init::uniform(shape, -bound, bound, dtype);
}

Tensor xavier_normal(Shape shape, double gain, DType dtype) {
  auto [in, out] = fans(shape);
  return init::normal(shape, 0, gain * std::sqrt(2 / static_cast<double>(in + out)), dtype);
}

Tensor zero_row(Tensor w, int64_t i) {
  NoGradGuard no_grad;
  Shape row = w.shape();
  row[0] = 1;
  DType dtype = w.dtype();
  return dynamic_update(std::move(w), 0, i, zeros(row, dtype));
}

}  // namespace tandem::nn::init
