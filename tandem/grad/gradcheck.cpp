// SPDX-License-Identifier: Apache-2.0
// gradcheck: compares derivatives with central differences in f64.
#include <cmath>

#include "tandem/grad/engine_internal.h"
#include "tandem/grad/transforms.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

// A fixed direction without symmetry, so that errors do not cancel.
Tensor weights_like(const Tensor& y, int salt) {
  std::vector<double> w(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = std::sin(1.7 * static_cast<double>(i) + 0.9 * salt) + 0.3;
  return reshape(tensor(w), y.shape());
}

// Reduces the outputs to one number.
Tensor weighted_sum(const Tensors& y) {
  Tensor total;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!is_floating(y[i].dtype())) continue;
    Tensor part = sum(y[i] * weights_like(y[i], static_cast<int>(i)));
    total = total.defined() ? total + part : part;
  }
  TD_CHECK(total.defined(), DType, "the function has no floating output");
  return total;
}

void check_input(TensorFn f, const Tensors& x, size_t k, const Tensor& analytic,
                 const GradcheckOptions& o, const char* what) {
  std::vector<double> base = x[k].to_vector<double>();
  std::vector<double> got = analytic.to_vector<double>();
  for (size_t e = 0; e < base.size(); ++e) {
    double side[2];
    for (int s = 0; s < 2; ++s) {
      std::vector<double> moved = base;
      moved[e] += s == 0 ? o.eps : -o.eps;
      Tensors args = x;
      args[k] = reshape(tensor(moved), x[k].shape());
      side[s] = weighted_sum(f(args)).item<double>();
    }
    double numeric = (side[0] - side[1]) / (2 * o.eps);
    double limit = o.atol + o.rtol * std::max(std::abs(numeric), std::abs(got[e]));
    TD_CHECK(std::abs(numeric - got[e]) <= limit, Value,
             "{} for element {} of input {} is {:.9g}, differences give {:.9g}", what, e, k, got[e],
             numeric);
  }
}

void check_order(TensorFn f, const Tensors& inputs, const GradcheckOptions& o, const char* what,
                 SourceLocation loc) {
  Tensors x;
  std::vector<int> argnums;
  for (size_t i = 0; i < inputs.size(); ++i) {
    x.push_back(inputs[i].detach());
    if (!is_floating(inputs[i].dtype())) continue;
    TD_CHECK(inputs[i].dtype() == DType::f64, DType, "expected f64 inputs, input {} is {}", i,
             to_string(inputs[i].dtype()));
    argnums.push_back(static_cast<int>(i));
  }
  auto scalar = [&](std::span<const Tensor> v) { return Tensors{weighted_sum(f(v))}; };
  auto r = detail::value_and_grads(scalar, x, argnums, loc);
  NoGradGuard no_grad;
  for (size_t i = 0; i < argnums.size(); ++i)
    check_input(f, x, static_cast<size_t>(argnums[i]), r.grads[i], o, what);
}

}  // namespace

bool gradcheck(TensorFn f, const Tensors& inputs, GradcheckOptions options,
               SourceLocation loc) try {
  check_order(f, inputs, options, "the gradient", loc);
  if (options.order < 2) return true;
  // The gradient as a function of the inputs, checked the same way.
  std::vector<int> argnums;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_floating(inputs[i].dtype())) argnums.push_back(static_cast<int>(i));
  auto gradient = [&](std::span<const Tensor> v) {
    auto scalar = [&](std::span<const Tensor> u) { return Tensors{weighted_sum(f(u))}; };
    return detail::value_and_grads(scalar, v, argnums, loc).grads;
  };
  check_order(gradient, inputs, options, "the second derivative", loc);
  return true;
} catch (const Error& e) {
  rethrow_at(e, "gradcheck", loc);
}

}  // namespace tandem
