// SPDX-License-Identifier: Apache-2.0
// Eigen behind the rows of linear algebra: decompositions and solvers of small dense matrices, f32
// and f64. A task is one matrix of the stack; Eigen itself runs on one thread, so bits do not
// depend on the number of threads.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <unsupported/Eigen/MatrixFunctions>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/linalg/linalg_internal.h"
#include "tandem/ops/linalg/svd_internal.h"

namespace tandem::detail {
namespace {

template <class T>
using Mat = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Vec = Eigen::Matrix<T, Eigen::Dynamic, 1>;
template <class T>
using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

int64_t rows_of(const Array& a) { return a.shape[a.rank - 2]; }
int64_t cols_of(const Array& a) { return a.shape[a.rank - 1]; }
// Elements of the dims before the last `dropped`.
int64_t stack_size(const Array& a, int dropped) {
  int64_t n = 1;
  for (int d = 0; d < a.rank - dropped; ++d) n *= a.shape[d];
  return n;
}

template <class F>
void with_type(const Array& a, F&& f) {
  if (a.dtype == DType::f64)
    f(double{});
  else
    f(float{});
}

template <class T>
Mat<T> matrix_at(const T* p, int64_t i, int64_t m, int64_t n) {
  return Eigen::Map<const Rows<T>>(p + i * m * n, m, n);
}
template <class T, class M>
void store_at(const Array& out, int64_t i, const M& value) {
  const int64_t m = value.rows(), n = value.cols();
  Eigen::Map<Rows<T>>(out.as<T>() + i * m * n, m, n) = value;
}

// Calls f(index, matrix) for each matrix of input 0, square or not.
template <class T, class F>
void each_matrix(const KernelCall& k, F&& f) {
  const Array& x = k.in[0];
  const int64_t m = rows_of(x), n = cols_of(x), count = stack_size(x, 2);
  const Packed<T> in(x);
  parallel_for_rows(count, 4 * m * n * std::max(m, n), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) f(i, matrix_at(in.get(), i, m, n));
  });
}

// Vectors are determined up to their sign: the entry of largest magnitude is made positive.
template <class M>
typename M::Scalar sign_of_column(const M& v, int64_t j) {
  Eigen::Index at = 0;
  v.col(j).cwiseAbs().maxCoeff(&at);
  return v(at, j) < 0 ? typename M::Scalar(-1) : typename M::Scalar(1);
}

template <class T>
struct Svd {
  Mat<T> u, v;
  Vec<T> s;
  bool ok = true;
  Svd(const Mat<T>& a, bool full) {
    const Eigen::Index m = a.rows(), n = a.cols(), k = std::min(m, n);
    full = full && m != n;
    Rows<T> left = Rows<T>::Identity(m, full ? m : k), right = Rows<T>::Identity(n, full ? n : k);
    s = Vec<T>::Zero(k);
    ok = a.allFinite();
    if (k && ok) {
      const Rows<T> x = a;
      ok = (!full && svd_small(x.data(), m, n, left.data(), s.data(), right.data())) ||
           svd(x.data(), m, n, full, left.data(), s.data(), right.data());
    } else if (!ok) {
      left.setZero();
      right.setZero();
    }
    u = left;
    v = right;
  }
};

// Gaussian elimination with partial pivoting, in place; the swaps count from 1.
template <class T>
void eliminate(Mat<T>& f, int32_t* pivots) {
  const Eigen::Index m = f.rows(), n = f.cols();
  for (Eigen::Index s = 0; s < std::min(m, n); ++s) {
    Eigen::Index at = 0;
    f.col(s).tail(m - s).cwiseAbs().maxCoeff(&at);
    pivots[s] = static_cast<int32_t>(s + at + 1);
    f.row(s).swap(f.row(s + at));
    const Eigen::Index rest = m - s - 1;
    if (f(s, s) != T(0)) f.col(s).tail(rest) /= f(s, s);
    f.bottomRightCorner(rest, n - s - 1).noalias() -=
        f.col(s).tail(rest) * f.row(s).tail(n - s - 1);
  }
}

template <class T>
bool is_singular(const Mat<T>& lu) {
  return lu.diagonal().size() && (lu.diagonal().array() == T(0)).any();
}

}  // namespace

void run_cholesky(const KernelCall& k) {
  const bool upper = k.get_attrs<linalg::CholeskyAttrs>().upper;
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      if (a.rows() == 0) return;
      // The upper triangle is the lower one of the transpose.
      const Eigen::LLT<Mat<T>> llt(upper ? Mat<T>(a.transpose()) : a);
      Mat<T> l = llt.matrixL();
      if (llt.info() != Eigen::Success || !(l.diagonal().minCoeff() > 0)) report_error(k, 1, i);
      store_at<T>(k.out[0], i, upper ? Mat<T>(l.transpose()) : l);
    });
  });
}

void run_solve_triangular(const KernelCall& k) {
  const auto& attrs = k.get_attrs<linalg::TriangularAttrs>();
  const int64_t n = rows_of(k.in[1]), columns = cols_of(k.in[1]);
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    const Packed<T> b(k.in[1]);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      Mat<T> x = matrix_at(b.get(), i, n, columns);
      if (x.size() == 0) return;
      if (attrs.upper && attrs.unitriangular)
        a.template triangularView<Eigen::UnitUpper>().solveInPlace(x);
      else if (attrs.upper)
        a.template triangularView<Eigen::Upper>().solveInPlace(x);
      else if (attrs.unitriangular)
        a.template triangularView<Eigen::UnitLower>().solveInPlace(x);
      else
        a.template triangularView<Eigen::Lower>().solveInPlace(x);
      store_at<T>(k.out[0], i, x);
    });
  });
}

// Pivots as LAPACK gives them: in step s row s was swapped with row pivots[s] - 1.
void run_lu_factor(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      const int64_t n = a.rows();
      if (a.size() == 0) return;
      if (n != a.cols()) {
        Mat<T> f = a;
        eliminate(f, k.out[1].as<int32_t>() + i * std::min(n, a.cols()));
        store_at<T>(k.out[0], i, f);
        return;
      }
      const Eigen::PartialPivLU<Mat<T>> lu(a);
      store_at<T>(k.out[0], i, lu.matrixLU());
      // Row r of the factors was row wanted[r]; find the swaps that bring it there.
      Eigen::VectorXi wanted(n), now(n), place(n);
      const auto& to = lu.permutationP().indices();
      for (int r = 0; r < n; ++r) wanted[to[r]] = now[r] = place[r] = r;
      auto* pivots = k.out[1].as<int32_t>() + i * n;
      for (int s = 0; s < n; ++s) {
        const int from = place[wanted[s]], other = now[s];
        pivots[s] = from + 1;
        std::swap(now[s], now[from]);
        place[other] = from;
        place[wanted[s]] = s;
      }
    });
  });
}

void run_lu_permutation(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t swaps = x.shape[x.rank - 1], n = y.shape[y.rank - 1];
  if (y.numel == 0) return;
  const Packed<int32_t> pivots(x);
  for (int64_t i = 0; i < y.numel / n; ++i) {
    int64_t* p = y.as<int64_t>() + i * n;
    for (int64_t r = 0; r < n; ++r) p[r] = r;
    for (int64_t s = 0; s < swaps; ++s) {
      const int64_t other = pivots[i * swaps + s] - 1;
      if (other < 0 || other >= n)
        report_error(k, 1, pivots[i * swaps + s]);
      else
        std::swap(p[s], p[other]);
    }
  }
}

void run_solve(const KernelCall& k) {
  const int64_t n = rows_of(k.in[1]), columns = cols_of(k.in[1]);
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    const Packed<T> b(k.in[1]);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      if (n == 0) return;
      const Eigen::PartialPivLU<Mat<T>> lu(a);
      if (is_singular<T>(lu.matrixLU())) report_error(k, 1, i);
      if (columns) store_at<T>(k.out[0], i, lu.solve(matrix_at(b.get(), i, n, columns)).eval());
    });
  });
}

void run_inv(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      if (a.rows() == 0) return;
      const Eigen::PartialPivLU<Mat<T>> lu(a);
      if (is_singular<T>(lu.matrixLU())) report_error(k, 1, i);
      store_at<T>(k.out[0], i, lu.inverse().eval());
    });
  });
}

void run_det(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      k.out[0].as<T>()[i] = a.rows() ? Eigen::PartialPivLU<Mat<T>>(a).determinant() : T(1);
    });
  });
}

void run_slogdet(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      T sign = 1, sum = 0;
      if (a.rows()) {
        const Eigen::PartialPivLU<Mat<T>> lu(a);
        sign = static_cast<T>(lu.permutationP().determinant());
        for (Eigen::Index j = 0; j < a.rows(); ++j) {
          const T d = lu.matrixLU()(j, j);
          sign *= d > 0 ? T(1) : d < 0 ? T(-1) : d;
          sum += std::log(std::abs(d));
        }
      }
      k.out[0].as<T>()[i] = sign;
      k.out[1].as<T>()[i] = sum;
    });
  });
}

// A matrix none of whose pivots is below this part of the largest one is taken as far from
// singular.
template <class T>
constexpr T kSafePivot = T(0.001);

// det(A) A^-T far from singular matrices and where the determinant is neither huge nor tiny; else
// det(u) det(v) u diag(products of the other singular values) v', which needs no inverse.
void run_cofactor(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      const Eigen::Index n = a.rows();
      if (n == 0) return;
      const Eigen::PartialPivLU<Mat<T>> lu(a);
      const auto pivots = lu.matrixLU().diagonal().cwiseAbs();
      const T det = lu.determinant();
      if (std::isnormal(det) && std::isnormal(1 / det) &&
          pivots.minCoeff() > kSafePivot<T> * pivots.maxCoeff()) {
        store_at<T>(k.out[0], i, (det * lu.inverse().transpose()).eval());
        return;
      }
      const Svd<T> svd(a, true);
      if (!svd.ok) report_error(k, 1, i);
      Vec<T> others = Vec<T>::Ones(n);
      for (Eigen::Index j = 0; j < n; ++j)
        for (Eigen::Index l = 0; l < n; ++l)
          if (l != j) others[j] *= svd.s[l];
      const T sign = svd.u.determinant() * svd.v.determinant() < 0 ? T(-1) : T(1);
      store_at<T>(k.out[0], i, (sign * svd.u * others.asDiagonal() * svd.v.transpose()).eval());
    });
  });
}

void run_qr(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      const Eigen::Index m = a.rows(), n = a.cols(), q = cols_of(k.out[0]);
      if (a.size() == 0) {
        if (k.out[0].numel) store_at<T>(k.out[0], i, Mat<T>::Identity(m, q).eval());
        return;
      }
      const Eigen::HouseholderQR<Mat<T>> qr(a);
      store_at<T>(k.out[0], i, Mat<T>(qr.householderQ() * Mat<T>::Identity(m, q)));
      Mat<T> r = Mat<T>::Zero(q, n);
      const Eigen::Index height = std::min(q, std::min(m, n));
      r.topRows(height) =
          qr.matrixQR().topRows(height).template triangularView<Eigen::Upper>().toDenseMatrix();
      store_at<T>(k.out[1], i, r);
    });
  });
}

void run_eigh(const KernelCall& k) {
  const bool upper = k.get_attrs<linalg::CholeskyAttrs>().upper;
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      const Eigen::Index n = a.rows();
      if (n == 0) return;
      Mat<T> v = Mat<T>::Zero(n, n);
      Vec<T> w = Vec<T>::Zero(n);
      if (!a.allFinite()) {
        report_error(k, 1, i);
      } else {
        const Eigen::SelfAdjointEigenSolver<Mat<T>> eigen(upper ? Mat<T>(a.transpose()) : a);
        if (eigen.info() != Eigen::Success) report_error(k, 1, i);
        v = eigen.eigenvectors();
        w = eigen.eigenvalues();
        for (Eigen::Index j = 0; j < n; ++j) v.col(j) *= sign_of_column(v, j);
      }
      store_at<T>(k.out[0], i, w);
      store_at<T>(k.out[1], i, v);
    });
  });
}

void run_svd(const KernelCall& k) {
  const bool full = k.get_attrs<linalg::SvdAttrs>().full_matrices;
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      const Svd<T> svd(a, full);
      if (!svd.ok) report_error(k, 1, i);
      if (svd.u.size()) store_at<T>(k.out[0], i, svd.u);
      if (svd.s.size()) store_at<T>(k.out[1], i, svd.s);
      if (svd.v.size()) store_at<T>(k.out[2], i, Mat<T>(svd.v.transpose()));
    });
  });
}

void run_pinv(const KernelCall& k) {
  const auto& attrs = k.get_attrs<linalg::PinvAttrs>();
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      if (a.size() == 0) return;
      const Svd<T> svd(a, false);
      if (!svd.ok) report_error(k, 1, i);
      const double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());
      const double rtol = attrs.rtol >= 0 ? attrs.rtol
                          : attrs.atol > 0
                              ? 0
                              : epsilon * static_cast<double>(std::max(a.rows(), a.cols()));
      const double least = std::max(attrs.atol, rtol * static_cast<double>(svd.s[0]));
      Vec<T> inverse = svd.s;
      for (Eigen::Index j = 0; j < inverse.size(); ++j)
        inverse[j] = static_cast<double>(svd.s[j]) > least ? T(1) / svd.s[j] : T(0);
      store_at<T>(k.out[0], i, (svd.v * inverse.asDiagonal() * svd.u.transpose()).eval());
    });
  });
}

void run_matrix_exp(const KernelCall& k) {
  with_type(k.in[0], [&](auto tag) {
    using T = decltype(tag);
    each_matrix<T>(k, [&](int64_t i, const Mat<T>& a) {
      if (a.rows() == 0) return;
      if (a.allFinite())
        store_at<T>(k.out[0], i, Mat<T>(a.exp()));
      else
        store_at<T>(
            k.out[0], i,
            Mat<T>::Constant(a.rows(), a.cols(), std::numeric_limits<T>::quiet_NaN()).eval());
    });
  });
}

}  // namespace tandem::detail
