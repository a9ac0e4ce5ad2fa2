// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of lines. Lines lie in the lanes of vectors, so that each of them is computed
// by the same operations whatever its neighbours and the instruction set: fft_lines.inc is compiled
// once as the reference of the rows fft, rfft and irfft (fft_lines.cpp), and per instruction set in
// backend/cpu. Not installed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/graph/kernel.h"

namespace tandem::detail {

/// What a transform of `n` complex numbers in C needs. Lengths with a prime factor above
/// kMostFftRadix are a convolution by a longer transform (L. Bluestein, "A linear filtering
/// approach to the computation of discrete Fourier transform", 1970), always in f64.
template <class C>
struct FftPlan {
  int64_t n = 1;
  std::vector<int> radices;
  std::vector<C> twiddles;  ///< (re, im) as the passes read them
  std::vector<C> roots;     ///< of unity of each radix above 5, one after the other
  std::vector<C> half;      ///< exp(-i pi k / n) for k <= n, for real lines of 2 n numbers

  std::shared_ptr<const FftPlan> inner;  ///< of the convolution; null without one
  std::vector<C> chirp, filter;          ///< n and inner->n numbers

  /// Complex numbers of work space.
  int64_t work() const { return 2 * (inner ? inner->n : n); }
};
inline constexpr int kMostFftRadix = 61;

enum class FftKind : uint8_t { forward, inverse, real, to_real };

/// to[k * to_row + j] = from[j * from_row + k] for j < n, k < depth; n is at least 16 or the lanes
/// of a vector.
template <class T>
using FftTranspose = void (*)(T* to, int64_t to_row, const T* from, int64_t from_row, int64_t n,
                              int64_t depth);

/// At most one vector's lanes of lines; T: as stored.
template <class T>
struct FftLines {
  FftKind kind;
  int64_t n;                   ///< samples of a line, on the real side of real transforms
  int lines;                   ///< those to store; the lanes above repeat the first
  const T* from[16];           ///< the first number of each line
  T* to[16];                   ///< where each line's first result goes
  int64_t from_step, to_step;  ///< from sample to sample, in numbers of T
  FftTranspose<T> transpose;   ///< for dense lines that are equally far apart; may be null
};

/// Vectors of `lanes` lines, at most 64 bytes, or one line alone.
template <class T, class C>
struct FftLoop {
  int lanes;
  void (*vectors)(const FftPlan<C>& plan, const FftLines<T>& lines, C* work);
  void (*alone)(const FftPlan<C>& plan, const FftLines<T>& lines, C* work);
};
struct FftLoops {
  FftLoop<float, float> f32;
  FftLoop<float, double> wide;  ///< f32 lines computed in f64
  FftLoop<double, double> f64;
  FftTranspose<float> transpose_f32 = nullptr;
  FftTranspose<double> transpose_f64 = nullptr;
};

/// Cached; `real` adds `half`.
template <class C>
std::shared_ptr<const FftPlan<C>> fft_plan(int64_t n, bool real);
bool fft_has_large_factor(int64_t n);

/// One call of fft, rfft or irfft.
void run_fft(const KernelCall& k, const FftLoops& loops);
void run_rfft(const KernelCall& k, const FftLoops& loops);
void run_irfft(const KernelCall& k, const FftLoops& loops);
extern const FftLoops kFftReference;
void reference_fft(const KernelCall& k);
void reference_rfft(const KernelCall& k);
void reference_irfft(const KernelCall& k);

}  // namespace tandem::detail
