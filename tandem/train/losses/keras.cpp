// SPDX-License-Identifier: Apache-2.0
// Losses of numbers with Keras's names and formulas.
#include "tandem/ops/ops.h"
#include "tandem/train/losses.h"

namespace tandem::train {
namespace {

// Keras's epsilon: what keeps logarithms and quotients finite.
// -1 and 1 for labels that are 0 and 1.
Tensor signs(const Tensor& y) { return where((y == 0.0).any(), 2.0 * y - 1.0, y); }
Tensor unit(const Tensor& t) { return t / maximum(norm(t, 2, {-1}, true), kKerasEpsilon); }

Tensor absolutes(const Tensor& x, const Tensor& y) { return abs(x - y); }
Tensor percentages(const Tensor& x, const Tensor& y) {
  return 100.0 * abs((y - x) / maximum(abs(y), kKerasEpsilon));
}
Tensor logarithmic(const Tensor& x, const Tensor& y) {
  return square(log1p(maximum(x, kKerasEpsilon)) - log1p(maximum(y, kKerasEpsilon)));
}
Tensor log_cosh_elements(const Tensor& x, const Tensor& y) {
  return log_cosh_loss(x, y, {.reduction = Reduction::none});
}
Tensor poisson_elements(const Tensor& x, const Tensor& y) { return x - y * log(x + kKerasEpsilon); }
Tensor hinge_elements(const Tensor& x, const Tensor& y) { return relu(1.0 - signs(y) * x); }
Tensor squared_hinge_elements(const Tensor& x, const Tensor& y) {
  return square(relu(1.0 - signs(y) * x));
}
Tensor divergence_rows(const Tensor& x, const Tensor& y) {
  const Tensor q = clamp(x, kKerasEpsilon, 1.0), p = clamp(y, kKerasEpsilon, 1.0);
  return (p * log(maximum(p, kKerasEpsilon) / maximum(q, kKerasEpsilon))).sum({-1});
}
Tensor cosine_rows(const Tensor& x, const Tensor& y) { return -(unit(x) * unit(y)).sum({-1}); }

}  // namespace

#define TD_KERAS_LOSS(row, f, doc) \
  constinit const LossRow row = keras_loss<f>(#row, doc, "{type: " #row "}");
namespace loss_rows {
TD_KERAS_LOSS(mean_squared_error, squared_errors, "Keras's long name of mse.")
TD_KERAS_LOSS(mae, absolutes, "Mean of |x - y|.")
TD_KERAS_LOSS(mean_absolute_error, absolutes, "Keras's long name of mae.")
TD_KERAS_LOSS(mape, percentages, "Mean of 100 |(y - x) / y|.")
TD_KERAS_LOSS(mean_absolute_percentage_error, percentages, "Keras's long name of mape.")
TD_KERAS_LOSS(msle, logarithmic, "Mean of (log(1 + x) - log(1 + y))^2.")
TD_KERAS_LOSS(mean_squared_logarithmic_error, logarithmic, "Keras's long name of msle.")
TD_KERAS_LOSS(log_cosh, log_cosh_elements, "Mean of log(cosh(x - y)).")
TD_KERAS_LOSS(logcosh, log_cosh_elements, "Another name of log_cosh.")
TD_KERAS_LOSS(poisson, poisson_elements, "Mean of x - y log x.")
TD_KERAS_LOSS(hinge, hinge_elements, "Mean of max(0, 1 - y x); labels 0 and 1 become -1 and 1.")
TD_KERAS_LOSS(squared_hinge, squared_hinge_elements, "Mean of max(0, 1 - y x)^2.")
TD_KERAS_LOSS(kl_divergence, divergence_rows, "Sum of y log(y / x) along the last dimension.")
TD_KERAS_LOSS(cosine_similarity, cosine_rows, "Minus the cosine along the last dimension.")
}  // namespace loss_rows
#undef TD_KERAS_LOSS

}  // namespace tandem::train
