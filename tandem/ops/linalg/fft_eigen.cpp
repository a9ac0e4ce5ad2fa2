// SPDX-License-Identifier: Apache-2.0
// The loops of the rows fft, rfft and irfft over Eigen's mixed-radix transform. Lengths with a
// large prime factor use Bluestein's chirp ("A linear filtering approach to the computation of the
// discrete Fourier transform", 1970), so no length costs more than n log n. A task is a set of
// whole lines.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include "tandem/ops/linalg/fft_internal.h"

#include <algorithm>
#include <complex>
#include <unsupported/Eigen/FFT>
#include <vector>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/linalg/fft.h"

namespace tandem::detail {
namespace {

bool has_large_factor(int64_t n) {
  for (int64_t p = 2; p <= 61; ++p)
    while (n % p == 0) n /= p;
  return n > 1;
}

// A reusable transform of length n. Chirps run in f64.
template <class T>
class Line {
 public:
  using Complex = std::complex<T>;
  Line(int64_t n, bool inverse) : n_(n), inverse_(inverse) {
    plain_.SetFlag(Eigen::FFT<T>::Unscaled);
    plain_.SetFlag(Eigen::FFT<T>::HalfSpectrum);
    if (!has_large_factor(n)) return;
    wide_.SetFlag(Eigen::FFT<double>::Unscaled);
    size_ = 1;
    while (size_ < 2 * n - 1) size_ *= 2;
    chirp_.resize(static_cast<size_t>(n));
    std::vector<std::complex<double>> filter(static_cast<size_t>(size_));
    for (int64_t i = 0; i < n; ++i) {
      // i^2 modulo 2n, so that the angle stays exact.
      const auto square = static_cast<double>(static_cast<uint64_t>(i) * static_cast<uint64_t>(i) %
                                              static_cast<uint64_t>(2 * n));
      const double angle =
          (inverse ? 1 : -1) * 3.14159265358979323846 * square / static_cast<double>(n);
      chirp_[static_cast<size_t>(i)] = std::polar(1.0, angle);
      filter[static_cast<size_t>(i)] = std::conj(chirp_[static_cast<size_t>(i)]);
      if (i) filter[static_cast<size_t>(size_ - i)] = filter[static_cast<size_t>(i)];
    }
    filter_.resize(filter.size());
    wide_.fwd(filter_.data(), filter.data(), size_);
    a_.resize(filter.size());
    b_.resize(filter.size());
  }

  void run(Complex* out, const Complex* in) {
    if (n_ == 1)
      out[0] = in[0];
    else if (!chirp_.empty())
      by_chirp(out, in);
    else if (inverse_)
      plain_.inv(out, in, n_);
    else
      plain_.fwd(out, in, n_);
  }

  // The lower half of the spectrum of n real numbers, and back.
  void run_real(Complex* out, const T* in) {
    if (n_ == 1) {
      out[0] = in[0];
    } else if (chirp_.empty()) {
      plain_.fwd(out, in, n_);
    } else {
      wide_in_.assign(in, in + n_);
      wide_out_.resize(wide_in_.size());
      by_chirp(wide_out_.data(), wide_in_.data());
      std::copy_n(wide_out_.begin(), n_ / 2 + 1, out);
    }
  }
  void run_to_real(T* out, const Complex* in) {
    if (n_ == 1) {
      out[0] = in[0].real();
    } else if (chirp_.empty()) {
      plain_.inv(out, in, n_);
    } else {
      wide_in_.assign(in, in + n_ / 2 + 1);
      for (int64_t i = n_ / 2 + 1; i < n_; ++i) wide_in_.push_back(std::conj(in[n_ - i]));
      wide_out_.resize(wide_in_.size());
      by_chirp(wide_out_.data(), wide_in_.data());
      for (int64_t i = 0; i < n_; ++i) out[i] = wide_out_[static_cast<size_t>(i)].real();
    }
  }

 private:
  void by_chirp(Complex* out, const Complex* in) {
    std::fill(a_.begin(), a_.end(), 0.0);
    for (size_t i = 0; i < chirp_.size(); ++i) a_[i] = std::complex<double>(in[i]) * chirp_[i];
    wide_.fwd(b_.data(), a_.data(), size_);
    for (size_t i = 0; i < b_.size(); ++i) b_[i] *= filter_[i];
    wide_.inv(a_.data(), b_.data(), size_);
    for (size_t i = 0; i < chirp_.size(); ++i)
      out[i] = Complex(a_[i] * chirp_[i] / static_cast<double>(size_));
  }

  int64_t n_, size_ = 0;
  bool inverse_;
  Eigen::FFT<T> plain_;
  Eigen::FFT<double> wide_;
  std::vector<std::complex<double>> chirp_, filter_, a_, b_;
  std::vector<Complex> wide_in_, wide_out_;
};

template <class T>
void run_lines(const KernelCall& k) {
  const auto& attrs = k.get_attrs<fft::FftAttrs>();
  const Array& y = k.out[0];
  if (y.numel == 0) return;
  const Packed<T> x(k.in[0]);
  const int d = normalize_dim(attrs.dim, y.rank - 1);
  const int64_t n = y.shape[d];
  int64_t inner = 1;
  for (int i = d + 1; i < y.rank - 1; ++i) inner *= y.shape[i];
  const auto* from = reinterpret_cast<const std::complex<T>*>(x.get());
  auto* to = reinterpret_cast<std::complex<T>*>(y.as<T>());
  parallel_for_rows(y.numel / (2 * n), 40 * n, [&](int64_t first, int64_t last) {
    Line<T> line(n, attrs.inverse);
    std::vector<std::complex<T>> a(static_cast<size_t>(n)), b(a.size());
    for (int64_t l = first; l < last; ++l) {
      const int64_t at = l / inner * inner * n + l % inner;
      for (int64_t i = 0; i < n; ++i) a[static_cast<size_t>(i)] = from[at + i * inner];
      line.run(b.data(), a.data());
      for (int64_t i = 0; i < n; ++i) to[at + i * inner] = b[static_cast<size_t>(i)];
    }
  });
}

// Lines of real numbers (in `real`) and of their half spectra (in `half`), one way or the other.
template <class T, bool kInverse>
void run_real_lines(const KernelCall& k) {
  using Complex = std::complex<T>;
  const Array& y = k.out[0];
  if (y.numel == 0) return;
  const Array& shape = kInverse ? y : k.in[0];  // on the real side
  const Packed<T> x(k.in[0]);
  const int d = normalize_dim(k.get_attrs<fft::RealFftAttrs>().dim, shape.rank);
  const int64_t n = shape.shape[d], h = n / 2 + 1;
  int64_t inner = 1, lines = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (i > d) inner *= shape.shape[i];
    if (i != d) lines *= shape.shape[i];
  }
  parallel_for_rows(lines, 20 * n, [&](int64_t first, int64_t last) {
    Line<T> line(n, kInverse);
    std::vector<T> real(static_cast<size_t>(n));
    std::vector<Complex> half(static_cast<size_t>(h));
    for (int64_t l = first; l < last; ++l) {
      const int64_t outer = l / inner, at_real = outer * inner * n + l % inner,
                    at_half = outer * inner * h + l % inner;
      if (kInverse) {
        const auto* from = reinterpret_cast<const Complex*>(x.get());
        for (int64_t i = 0; i < h; ++i) half[static_cast<size_t>(i)] = from[at_half + i * inner];
        line.run_to_real(real.data(), half.data());
        for (int64_t i = 0; i < n; ++i)
          y.as<T>()[at_real + i * inner] = real[static_cast<size_t>(i)];
      } else {
        for (int64_t i = 0; i < n; ++i) real[static_cast<size_t>(i)] = x.get()[at_real + i * inner];
        line.run_real(half.data(), real.data());
        auto* to = reinterpret_cast<Complex*>(y.as<T>());
        for (int64_t i = 0; i < h; ++i) to[at_half + i * inner] = half[static_cast<size_t>(i)];
      }
    }
  });
}

}  // namespace

void run_rfft(const KernelCall& k) {
  k.out[0].dtype == DType::f64 ? run_real_lines<double, false>(k) : run_real_lines<float, false>(k);
}
void run_irfft(const KernelCall& k) {
  k.out[0].dtype == DType::f64 ? run_real_lines<double, true>(k) : run_real_lines<float, true>(k);
}
void run_fft(const KernelCall& k) {
  if (k.out[0].dtype == DType::f64)
    run_lines<double>(k);
  else
    run_lines<float>(k);
}

}  // namespace tandem::detail
