// SPDX-License-Identifier: Apache-2.0
// The singular value decomposition of one matrix. Eigen's takes a compiler longer than any other
// file of the project, so its sources include nothing that changes and are one for each type.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// Row-major `a` [m, n], finite, neither size 0, is u diag(s) v^T: u [m, k] and v [n, k],
/// row-major, s [k], with k = min(m, n); `full`: u [m, m] and v [n, n]. In each column of u the
/// entry of largest magnitude is positive. Returns false when the iteration does not converge.
bool svd(const float* a, int64_t m, int64_t n, bool full, float* u, float* s, float* v);
bool svd(const double* a, int64_t m, int64_t n, bool full, double* u, double* s, double* v);

/// Sizes up to which svd_small() is the faster one.
inline constexpr int64_t kSmallSvd = 16;
/// The same without `full`, for matrices of at most kSmallSvd rows and columns; false where svd()
/// is to be asked: for others, and where singular values vanish beside the largest.
template <class T>
bool svd_small(const T* a, int64_t m, int64_t n, T* u, T* s, T* v);

}  // namespace tandem::detail
