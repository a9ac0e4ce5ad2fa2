// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/linalg/svd_eigen.inc"

namespace tandem::detail {

bool svd(const float* a, int64_t m, int64_t n, bool full, float* u, float* s, float* v) {
  return svd_by_eigen(a, m, n, full, u, s, v);
}

}  // namespace tandem::detail
