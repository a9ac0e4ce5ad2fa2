// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/aliases.h"

#include <cmath>

#include "tandem/ops/function_internal.h"

namespace tandem {

Tensor range(double start, double end, double step, DType dtype, SourceLocation loc) {
  return detail::composed("range", loc, [&] {
    TD_CHECK(step != 0 && std::isfinite(start) && std::isfinite(end), Value,
             "start {}, end {} and step {} must be finite, and the step not 0", start, end, step);
    const double steps = std::floor((end - start) / step);
    TD_CHECK(steps >= 0 && steps < 0x1p62, Value, "no number lies between {} and {} in steps of {}",
             start, end, step);
    return (arange(static_cast<int64_t>(steps) + 1).to(DType::f64) * step + start).to(dtype);
  });
}

}  // namespace tandem
