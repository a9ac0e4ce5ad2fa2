// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/check_numerics.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"

namespace tandem {
namespace {

struct Found {
  int64_t nans = 0, infinities = 0, first = -1;
};
template <class T>
Found scan(const Tensor& x) {
  Found f;
  const std::vector<T> values = x.to_vector<T>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    ++(std::isnan(values[i]) ? f.nans : f.infinities);
    if (f.first < 0) f.first = static_cast<int64_t>(i);
  }
  return f;
}

std::string index_text(const Tensor& x, int64_t flat) {
  std::vector<int64_t> at(static_cast<size_t>(x.dim()));
  for (int d = x.dim() - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] = flat % x.size(d);
    flat /= x.size(d);
  }
  std::string text;
  for (int64_t i : at) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  return "[" + text + "]";
}

}  // namespace

Tensor check_numerics(const Tensor& x, const std::string& message, Where where) try {
  TD_CHECK(x.defined(), Value, "wants a tensor, got none");
  if (!is_floating(x.dtype()) || x.is_symbolic() || is_tracing()) return x;
  NoGradGuard no_grad;
  const Tensor values = x.detach();
  if (isfinite(values).all().item<bool>()) return x;
  const Found f =
      x.dtype() == DType::f64 ? scan<double>(values) : scan<float>(values.to(DType::f32));
  TD_FAIL(Value, "{}{}{} {} holds {} NaN and {} infinite of {} elements, the first at {}", message,
          message.empty() ? "" : ": ", to_string(x.dtype()), x.shape().to_string(), f.nans,
          f.infinities, x.numel(), index_text(x, f.first));
} catch (const Error& e) {
  throw with_place(e, "check_numerics", where);
}

}  // namespace tandem
