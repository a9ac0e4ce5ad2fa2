// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/linalg/svd_eigen.inc"

namespace tandem::detail {

bool svd(const double* a, int64_t m, int64_t n, bool full, double* u, double* s, double* v) {
  return svd_by_eigen(a, m, n, full, u, s, v);
}

}  // namespace tandem::detail
