// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/number.h"

#include "tandem/graph/dry_run.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem::optim {

// A dry run has no value to read; none of what it finds out depends on one.
Number read(const Tensor& t) {
  if (is_dry_run()) return Number(1.0);
  if (t.is_symbolic()) return Number(t.to(DType::f64));
  return Number(t.to(DType::f64).item<double>());
}

Number length(const Tensor& t) { return read(tandem::sqrt(sum(square(t)))); }

}  // namespace tandem::optim
