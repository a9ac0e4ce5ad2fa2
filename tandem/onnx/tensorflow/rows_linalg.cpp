// SPDX-License-Identifier: Apache-2.0
// TensorFlow's matrices, Fourier transforms and rarer functions. Complex numbers are pairs in a
// last dimension of 2: only ops that name their type T here know them.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

template <const OpDef& op>
void tf_function(OnnxCall& c) {
  run_direct(c, op);
}

// ---- matrices

Tensor turned_if(const Tensor& a, bool turn) { return turn ? a.transpose(-1, -2) : a; }

void tf_inverse(OnnxCall& c) {
  c.set_like(0, linalg::inv(turned_if(c.x(0), c.attr("adjoint", 0) != 0)));
}
void tf_cholesky(OnnxCall& c) { c.set_like(0, linalg::cholesky(c.x(0))); }
void tf_solve(OnnxCall& c) {
  c.set_like(0, linalg::solve(turned_if(c.x(0), c.attr("adjoint", 0) != 0), c.x(1)));
}
void tf_triangular_solve(OnnxCall& c) {
  const bool lower = c.attr("lower", 1) != 0, adjoint = c.attr("adjoint", 0) != 0;
  const Tensor a = turned_if(c.x(0), adjoint);
  c.set_like(0, linalg::solve_triangular(a, c.x(1), lower == adjoint));
}
void tf_determinant(OnnxCall& c) { c.set_like(0, linalg::det(c.x(0))); }
void tf_log_determinant(OnnxCall& c) {
  const SlogdetResult r = linalg::slogdet(c.x(0));
  c.set_like(0, r.sign);
  c.set_like(1, r.logabsdet);
}
void tf_qr(OnnxCall& c) {
  const QrResult r = linalg::qr(c.x(0), c.attr("full_matrices", 0) ? "complete" : "reduced");
  c.set_like(0, r.Q);
  c.set_like(1, r.R);
}
// Signs of singular vectors and eigenvectors are free: ours differ from TensorFlow's.
void tf_svd(OnnxCall& c) {
  if (!c.attr("compute_uv", 1)) return c.set_like(0, linalg::svdvals(c.x(0)));
  const LinalgSvdResult r = linalg::svd(c.x(0), c.attr("full_matrices", 0) != 0);
  c.set_like(0, r.S);
  c.set_like(1, r.U);
  c.set_like(2, contiguous(r.Vh.transpose(-1, -2)));
}
void tf_eigh(OnnxCall& c) {
  if (!c.attr("compute_v", 1)) return c.set_like(0, linalg::eigvalsh(c.x(0)));
  const EighResult r = linalg::eigh(c.x(0));
  c.set_like(0, r.eigenvalues);
  c.set_like(1, r.eigenvectors);
}
void tf_diagonal_matrix(OnnxCall& c) {
  const Tensor x = c.x(0);
  if (c.has(1))
    TD_CHECK(c.ints(1) == std::vector<int64_t>{0} && c.int_at(2) == -1 && c.int_at(3) == -1,
             Unsupported, "only the main diagonal of a square matrix is supported");
  c.set(0, diag_embed(x), c.type(0));
}
void tf_diagonal_of_matrix(OnnxCall& c) {
  if (c.has(1))
    TD_CHECK(c.ints(1) == std::vector<int64_t>{0}, Unsupported,
             "only the main diagonal is supported");
  c.set(0, contiguous(diagonal(c.x(0), 0, -2, -1)), c.type(0));
}
void tf_set_diagonal(OnnxCall& c) {
  if (c.has(2))
    TD_CHECK(c.ints(2) == std::vector<int64_t>{0}, Unsupported,
             "only the main diagonal is supported");
  c.set(0, diagonal_scatter(c.x(0), c.x(1), 0, -2, -1), c.type(0));
}
void tf_cross(OnnxCall& c) { c.set_like(0, linalg::cross(c.x(0), c.x(1))); }

// ---- running products

Tensor running(OnnxCall& c, Tensor (*of)(Tensor, int64_t, SourceLocation), double first) {
  Tensor x = c.x(0);
  const int d = normalize_dim(c.int_at(1), x.dim());
  const bool reverse = c.attr("reverse", 0) != 0;
  if (reverse) x = flip(x, {d});
  if (c.attr("exclusive", 0) && x.size(d) > 0) {
    const Tensor start = full_like(x.narrow(d, 0, 1), Scalar(first));
    x = cat({start, x.narrow(d, 0, x.size(d) - 1)}, d);
  }
  x = of(x, d, SourceLocation::here());
  return reverse ? flip(x, {d}) : x;
}
void tf_cumprod(OnnxCall& c) { c.set_like(0, running(c, cumprod, 1)); }
void tf_cumulative_logsumexp(OnnxCall& c) { c.set_like(0, running(c, logcumsumexp, -INFINITY)); }

// ---- Fourier transforms

/// The last dimensions of a tensor with (a complex one) or without pairs; sizes if they are given.
template <int dims, bool forward>
void tf_fft(OnnxCall& c) {
  Tensor x = c.x(0);
  IntList along;
  for (int d = -dims; d < 0; ++d) along.push_back(d);
  c.set(0, forward ? fft::fftn(x, {}, along) : fft::ifftn(x, {}, along));
}
template <int dims>
void tf_rfft(OnnxCall& c) {
  IntList along;
  for (int d = -dims; d < 0; ++d) along.push_back(d);
  c.set(0, fft::rfftn(c.x(0), onnx_list(c.ints(1)), along));
}
template <int dims>
void tf_irfft(OnnxCall& c) {
  IntList along;
  for (int d = -dims; d < 0; ++d) along.push_back(d);
  c.set(0, fft::irfftn(c.x(0), onnx_list(c.ints(1)), along));
}

template <int part>  // 0: real, 1: imaginary
void tf_part(OnnxCall& c) {
  c.set(0, contiguous(c.x(0).select(-1, part)));
}
void tf_complex(OnnxCall& c) { c.set(0, stack({c.x(0), c.x(1)}, -1)); }
void tf_complex_abs(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, hypot(x.select(-1, 0), x.select(-1, 1)));
}
void tf_angle(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, atan2(x.select(-1, 1), x.select(-1, 0)));
}
void tf_conjugate(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, stack({x.select(-1, 0), -x.select(-1, 1)}, -1));
}

}  // namespace

// table: a row for each op
std::span<const OnnxRow> onnx_tf_linalg_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTf, "MatrixInverse", 1, 0, tf_inverse, {1, 1, "adjoint"}},
      {kOnnxTf, "Cholesky", 1, 0, tf_cholesky, {1, 1, ""}},
      {kOnnxTf, "MatrixSolve", 1, 0, tf_solve, {2, 1, "adjoint"}},
      {kOnnxTf, "MatrixTriangularSolve", 1, 0, tf_triangular_solve, {2, 1, "lower adjoint"}},
      {kOnnxTf, "MatrixDeterminant", 1, 0, tf_determinant, {1, 1, ""}},
      {kOnnxTf, "LogMatrixDeterminant", 1, 0, tf_log_determinant, {1, 2, ""}},
      {kOnnxTf, "Qr", 1, 0, tf_qr, {1, 2, "full_matrices"}},
      {kOnnxTf, "Svd", 1, 0, tf_svd, {1, 3, "compute_uv full_matrices"}},
      {kOnnxTf, "SelfAdjointEigV2", 1, 0, tf_eigh, {1, 2, "compute_v"}},
      {kOnnxTf, "MatrixDiag", 1, 0, tf_diagonal_matrix, {1, 1, ""}},
      settings_from(1, {kOnnxTf, "MatrixDiagV3", 1, 0, tf_diagonal_matrix, {5, 1, "~align"}}),
      {kOnnxTf, "MatrixDiagPart", 1, 0, tf_diagonal_of_matrix, {1, 1, ""}},
      settings_from(1,
                    {kOnnxTf, "MatrixDiagPartV3", 1, 0, tf_diagonal_of_matrix, {3, 1, "~align"}}),
      {kOnnxTf, "MatrixSetDiag", 1, 0, tf_set_diagonal, {2, 1, ""}},
      settings_from(2, {kOnnxTf, "MatrixSetDiagV3", 1, 0, tf_set_diagonal, {3, 1, "~align"}}),
      {kOnnxTf, "Cross", 1, 0, tf_cross, {2, 1, ""}},
      settings_from(1, {kOnnxTf, "Cumprod", 1, 0, tf_cumprod, {2, 1, "exclusive reverse"}}),
      settings_from(1, {kOnnxTf,
                        "CumulativeLogsumexp",
                        1,
                        0,
                        tf_cumulative_logsumexp,
                        {2, 1, "exclusive reverse"}}),
      {kOnnxTf, "FFT", 1, 0, tf_fft<1, true>, {1, 1, "Tcomplex"}},
      {kOnnxTf, "FFT2D", 1, 0, tf_fft<2, true>, {1, 1, "Tcomplex"}},
      {kOnnxTf, "FFT3D", 1, 0, tf_fft<3, true>, {1, 1, "Tcomplex"}},
      {kOnnxTf, "IFFT", 1, 0, tf_fft<1, false>, {1, 1, "Tcomplex"}},
      {kOnnxTf, "IFFT2D", 1, 0, tf_fft<2, false>, {1, 1, "Tcomplex"}},
      {kOnnxTf, "IFFT3D", 1, 0, tf_fft<3, false>, {1, 1, "Tcomplex"}},
      settings_from(1, {kOnnxTf, "RFFT", 1, 0, tf_rfft<1>, {2, 1, "Tcomplex Treal"}}),
      settings_from(1, {kOnnxTf, "RFFT2D", 1, 0, tf_rfft<2>, {2, 1, "Tcomplex Treal"}}),
      settings_from(1, {kOnnxTf, "RFFT3D", 1, 0, tf_rfft<3>, {2, 1, "Tcomplex Treal"}}),
      settings_from(1, {kOnnxTf, "IRFFT", 1, 0, tf_irfft<1>, {2, 1, "Tcomplex Treal"}}),
      settings_from(1, {kOnnxTf, "IRFFT2D", 1, 0, tf_irfft<2>, {2, 1, "Tcomplex Treal"}}),
      settings_from(1, {kOnnxTf, "IRFFT3D", 1, 0, tf_irfft<3>, {2, 1, "Tcomplex Treal"}}),
      {kOnnxTf, "Real", 1, 0, tf_part<0>, {1, 1, "T Tout"}},
      {kOnnxTf, "Imag", 1, 0, tf_part<1>, {1, 1, "T Tout"}},
      {kOnnxTf, "Complex", 1, 0, tf_complex, {2, 1, "T Tout"}},
      {kOnnxTf, "ComplexAbs", 1, 0, tf_complex_abs, {1, 1, "T Tout"}},
      {kOnnxTf, "Angle", 1, 0, tf_angle, {1, 1, "T Tout"}},
      {kOnnxTf, "Conj", 1, 0, tf_conjugate, {1, 1, "T"}},
      {kOnnxTf, "LeftShift", 1, 0, tf_function<op::bitwise_left_shift>, {2, 1, ""}},
      {kOnnxTf, "RightShift", 1, 0, tf_function<op::bitwise_right_shift>, {2, 1, ""}},
      {kOnnxTf, "Igamma", 1, 0, tf_function<op::gammainc>, {2, 1, ""}},
      {kOnnxTf, "Igammac", 1, 0, tf_function<op::gammaincc>, {2, 1, ""}},
      {kOnnxTf, "Zeta", 1, 0, tf_function<op::zeta>, {2, 1, ""}},
      {kOnnxTf, "Xlog1py", 1, 0, tf_function<op::xlog1py>, {2, 1, ""}},
      {kOnnxTf, "Ndtri", 1, 0, tf_function<op::ndtri>, {1, 1, ""}},
      {kOnnxTf, "BesselI0", 1, 0, tf_function<op::i0>, {1, 1, ""}},
      {kOnnxTf, "BesselI1", 1, 0, tf_function<op::i1>, {1, 1, ""}},
      {kOnnxTf, "BesselI0e", 1, 0, tf_function<op::i0e>, {1, 1, ""}},
      {kOnnxTf, "BesselI1e", 1, 0, tf_function<op::i1e>, {1, 1, ""}},
  };
  return kRows;
}

}  // namespace tandem::onnx
