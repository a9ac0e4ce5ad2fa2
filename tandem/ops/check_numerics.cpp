// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/check_numerics.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem {
namespace {

// Inspects every value and counts the bad ones; `values` are those of x in row-major order.
template <class T>
void check_values(const T* values, const Array& x, const std::string& message) {
  int64_t nans = 0, infinities = 0, first = -1;
  for (int64_t i = 0; i < x.numel; ++i) {
    const auto v = static_cast<double>(values[i]);
    if (std::isfinite(v)) continue;
    ++(std::isnan(v) ? nans : infinities);
    if (first < 0) first = i;
  }
  if (first < 0) return;
  std::string index;
  for (int d = x.rank - 1; d >= 0; first /= x.shape[d--])
    index = fmt::format("{}{}{}", first % x.shape[d], index.empty() ? "" : ", ", index);
  TD_FAIL(Value, "{}{}{} {} holds {} NaN and {} infinite of {} elements, the first at [{}]",
          message, message.empty() ? "" : ": ", to_string(x.dtype),
          Shape(std::span<const int64_t>(x.shape, x.rank)).to_string(), nans, infinities, x.numel,
          index);
}

void check_infer(InferCall& c) { c.out[0] = c.in[0]; }
void check_vjp(VjpCall& c) { c.results[0] = c.grad(); }
void check_batch(BatchCall& c) {
  const CheckNumericsAttrs a = c.get_attrs<CheckNumericsAttrs>();
  c.out[0] = call(op::check_numerics, &a, c.node.loc, c.in[0]);
}

void check_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  if (y.data != x.data) detail::copy_array(y, x);
  const std::string& message = k.get_attrs<CheckNumericsAttrs>().message;
  if (y.dtype == DType::f32 && y.contiguous) {
    check_values(y.as<float>(), y, message);
  } else if (is_floating(y.dtype)) {
    const detail::Dense<double> values(y);
    check_values(values.get(), y, message);
  }
}

}  // namespace

namespace op {
constinit const OpDef check_numerics =
    control_row("check_numerics", {"x"}, fields<CheckNumericsAttrs>())
        .flag(kEffect | kReuseFirst)
        .infer(check_infer)
        .vjp(check_vjp)
        .batch(check_batch)
        .reference(check_loops)
        .doc("x unchanged; throws if it contains a NaN or an infinity.");
}  // namespace op

Tensor check_numerics(const Tensor& x, const std::string& message, SourceLocation loc) {
  const CheckNumericsAttrs attrs{message};
  if (x.defined() && !x.is_symbolic() && !is_tracing()) {  // no copy if all is well
    if (!is_floating(x.dtype())) return x;
    NoGradGuard no_grad;
    if (isfinite(x.detach()).all().item<bool>()) return x;
  }
  return call(op::check_numerics, &attrs, loc, x);
}

}  // namespace tandem
