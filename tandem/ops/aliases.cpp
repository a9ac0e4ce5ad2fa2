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

Tensor empty_strided(Shape size, IntList stride, DType dtype, SourceLocation loc) {
  return detail::composed("empty_strided", loc, [&] {
    TD_CHECK(size.rank() == stride.rank(), Shape, "size is {}, stride {}", size.to_string(),
             stride.to_string());
    return empty(size, dtype);
  });
}
Tensor empty_permuted(Shape size, IntList physical_layout, DType dtype, SourceLocation loc) {
  return detail::composed("empty_permuted", loc, [&] {
    TD_CHECK(size.rank() == physical_layout.rank(), Shape, "size is {}, physical_layout {}",
             size.to_string(), physical_layout.to_string());
    return empty(size, dtype);
  });
}

}  // namespace tandem
