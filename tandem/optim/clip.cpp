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

Tensor get_total_norm(const std::vector<Param>& params, double p, SourceLocation loc) {
  NoGradGuard no_grad;
  bool largest = std::isinf(p);
  Tensor total;
  for (const Param& q : params) {
    Tensor g = q.grad();
    if (!g.defined() || (!g.is_symbolic() && g.numel() == 0)) continue;
    Tensor s = largest  ? amax(abs(g, loc), {}, false, loc)
               : p == 2 ? sum(square(g, loc), {}, false, loc)
                        : sum(pow(abs(g, loc), p, loc), {}, false, loc);
    if (total.defined())
      total = largest ? maximum(std::move(total), std::move(s), loc)
                      : add(std::move(total), std::move(s), loc);
    else
      total = s;
  }
  if (!total.defined()) return zeros({});
  if (largest) return total;
  return p == 2 ? sqrt(std::move(total), loc) : pow(std::move(total), 1 / p, loc);
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
