// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/init.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"

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
  TD_CHECK(shape.rank() >= 2, Shape, "fan in and fan out want at least 2 dimensions, got {}",
           shape.to_string());
  int64_t window = 1;
  for (int i = 2; i < shape.rank(); ++i) window *= shape[i].value();
  return {shape[1].value() * window, shape[0].value() * window};
}

Tensor fan_in_uniform(Shape shape, int64_t fan_in, DType dtype) {
  double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return init::uniform(shape, -bound, bound, dtype);
}

Tensor kaiming_uniform(Shape shape, double a, DType dtype) {
  double bound = std::sqrt(6 / ((1 + a * a) * static_cast<double>(fans(shape).first)));
  return init::uniform(shape, -bound, bound, dtype);
}

Tensor kaiming_normal(Shape shape, double a, DType dtype) {
  return init::normal(shape, 0,
                      std::sqrt(2 / ((1 + a * a) * static_cast<double>(fans(shape).first))), dtype);
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
