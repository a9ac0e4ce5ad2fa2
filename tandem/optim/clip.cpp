// SPDX-License-Identifier: Apache-2.0
// Norms of gradients and clipping.
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {

namespace {

// What a gradient adds to the total, which root_of() ends; an undefined one adds nothing.
Tensor norm_term(const Param& q, double p, SourceLocation loc) {
  const Tensor g = q.grad();
  if (!g.defined() || (!g.is_symbolic() && g.numel() == 0)) return {};
  return std::isinf(p) ? amax(abs(g, loc), {}, false, loc)
         : p == 2      ? sum(square(g, loc), {}, false, loc)
                       : sum(pow(abs(g, loc), p, loc), {}, false, loc);
}
Tensor plus_term(Tensor total, Tensor term, double p, SourceLocation loc) {
  if (!total.defined()) return term;
  return std::isinf(p) ? maximum(std::move(total), std::move(term), loc)
                       : add(std::move(total), std::move(term), loc);
}
Tensor root_of(Tensor total, double p, SourceLocation loc) {
  if (std::isinf(p)) return total;
  return p == 2 ? sqrt(std::move(total), loc) : pow(std::move(total), 1 / p, loc);
}

}  // namespace

Tensor get_total_norm(const std::vector<Param>& params, double p, SourceLocation loc) {
  NoGradGuard no_grad;
  Tensor total;
  for (const Param& q : params)
    if (Tensor s = norm_term(q, p, loc); s.defined())
      total = plus_term(std::move(total), std::move(s), p, loc);
  return total.defined() ? root_of(std::move(total), p, loc) : zeros({});
}

Tensor get_norm_terms(const std::vector<Param>& params, double p, SourceLocation loc) {
  NoGradGuard no_grad;
  DType dtype = params.empty() ? DType::f32 : params.front().dtype();
  for (const Param& q : params)
    if (q.dtype() != dtype) dtype = DType::f64;
  const DeviceGuard there(params.empty() ? cpu : params.front().cell()->spec().device);
  std::vector<Tensor> terms;
  for (const Param& q : params) {
    const Tensor s = norm_term(q, p, loc);
    terms.push_back(s.defined() ? s.to(dtype) : zeros({}, dtype));
  }
  return terms.empty() ? zeros({0}) : stack(terms, 0, loc);
}

Tensor norm_of_terms(const Tensor& terms, double p, SourceLocation loc) {
  NoGradGuard no_grad;
  Tensor total;
  for (int64_t i = 0; i < terms.size(0); ++i)
    total = plus_term(std::move(total), terms.select(0, i), p, loc);
  return total.defined() ? root_of(std::move(total), p, loc) : zeros({});
}

Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm, double norm_type,
                       bool error_if_nonfinite, SourceLocation loc) try {
  NoGradGuard no_grad;
  TD_CHECK(norm_type > 0, Value, "norm_type is {}, expected more than 0", norm_type);
  Tensor norm = get_total_norm(params, norm_type, loc);
  if (error_if_nonfinite) {
    TD_CHECK(!is_tracing(), Unsupported,
             "error_if_nonfinite reads the norm, which has no value in a trace\nLeave it out.");
    TD_CHECK(std::isfinite(norm.to_vector<double>()[0]), Value,
             "the total norm of the gradients is {}\nLook for the first one with "
             "DetectAnomalyGuard.",
             norm.to_vector<double>()[0]);
  }
  clip_grads_with_norm_(params, max_norm, norm, loc);
  return norm;
} catch (const Error& e) {
  if (!e.op().empty() && e.loc().file) throw;
  throw with_place(e, "clip_grad_norm_", loc);
}

void clip_grads_with_norm_(const std::vector<Param>& params, double max_norm, const Tensor& norm,
                           SourceLocation loc) {
  NoGradGuard no_grad;
  const Tensor factor = clamp_max(div(max_norm, norm + 1e-6, loc), 1.0, loc);
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(mul(std::move(g), factor, loc));
}

void clip_grad_value_(const std::vector<Param>& params, double value, SourceLocation loc) {
  NoGradGuard no_grad;
  for (const Param& p : params)
    if (Tensor g = p.grad(); g.defined()) p.set_grad(clamp(std::move(g), -value, value, loc));
}

}  // namespace tandem::optim
