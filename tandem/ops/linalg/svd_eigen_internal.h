// SPDX-License-Identifier: Apache-2.0
// What svd_f32.cpp and svd_f64.cpp have in common: the decomposition by Eigen, which runs on one
// thread, so that bits do not depend on the number of threads.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/SVD>

#include "tandem/ops/linalg/svd_internal.h"

namespace tandem::detail {

template <class T>
bool svd_by_eigen(const T* a, int64_t m, int64_t n, bool full, T* u, T* s, T* v) {
  using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Columns x = Eigen::Map<const Rows>(a, m, n);
  const unsigned options =
      full ? Eigen::ComputeFullU | Eigen::ComputeFullV : Eigen::ComputeThinU | Eigen::ComputeThinV;
  const Eigen::BDCSVD<Columns> found(x, options);
  Columns left = found.matrixU(), right = found.matrixV();
  const Eigen::Index k = found.singularValues().size();
  for (Eigen::Index j = 0; j < k; ++j) {
    s[j] = found.singularValues()[j];
    Eigen::Index at = 0;
    left.col(j).cwiseAbs().maxCoeff(&at);
    if (left(at, j) < 0) {
      left.col(j) = -left.col(j);
      right.col(j) = -right.col(j);
    }
  }
  Eigen::Map<Rows>(u, left.rows(), left.cols()) = left;
  Eigen::Map<Rows>(v, right.rows(), right.cols()) = right;
  return found.info() == Eigen::Success;
}

}  // namespace tandem::detail
