// SPDX-License-Identifier: Apache-2.0
// The rows fft, rfft and irfft over lines: which lines meet in the lanes of vectors, and the loops
// in the compiler's base instruction set, their reference. A task is a set of whole lines.
#include <algorithm>
#include <cstring>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/linalg/fft.h"
#include "tandem/ops/linalg/fft_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/ops/linalg/fft_lines.inc"

// Above so many numbers the lanes' lines no longer fit a cache, and each line runs alone.
constexpr int64_t kMostVectorLength = 16384;

// The arrays of a call, dense: [outer, samples, inner], each side with its own samples, and complex
// numbers as pairs.
template <class T>
struct FftCall {
  FftKind kind;
  int64_t n, outer, inner;
  const T* from;
  T* to;
  int64_t from_samples, to_samples;
  int from_per, to_per;  // numbers of a sample
  FftTranspose<T> transpose;
};

// Work space on the boundary of a vector.
template <class C>
class FftWork {
 public:
  explicit FftWork(int64_t numbers)
      : bytes_(static_cast<size_t>(numbers) * sizeof(C) + 64), p_(new std::byte[bytes_]) {}
  C* get() const {
    void* p = p_.get();
    size_t space = bytes_;
    return static_cast<C*>(std::align(64, bytes_ - 64, p, space));
  }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte[]> p_;
};

// Lines first to last, which lie in turn along `inner`, then `outer`.
template <class T, class C>
void run_range(const FftCall<T>& c, const FftPlan<C>& plan, const FftLoop<T, C>& loop, C* work,
               int64_t first, int64_t last) {
  FftLines<T> lines{};
  lines.kind = c.kind;
  lines.n = c.n;
  lines.from_step = c.inner * c.from_per;
  lines.to_step = c.inner * c.to_per;
  lines.transpose = c.transpose;
  const auto set = [&](int lane, int64_t line) {
    const int64_t outer = line / c.inner, inner = line % c.inner;
    lines.from[lane] = c.from + (outer * c.from_samples * c.inner + inner) * c.from_per;
    lines.to[lane] = c.to + (outer * c.to_samples * c.inner + inner) * c.to_per;
  };
  for (int64_t l = first; l < last;) {
    const int64_t left = last - l;
    if (c.n > kMostVectorLength || left == 1) {
      lines.lines = 1;
      set(0, l++);
      loop.alone(plan, lines, work);
      continue;
    }
    lines.lines = static_cast<int>(std::min<int64_t>(loop.lanes, left));
    for (int lane = 0; lane < loop.lanes; ++lane) set(lane, lane < lines.lines ? l + lane : l);
    loop.vectors(plan, lines, work);
    l += lines.lines;
  }
}

template <class T, class C>
void run_lines(const FftCall<T>& c, const FftLoop<T, C>& loop) {
  const bool pairs = (c.kind == FftKind::real || c.kind == FftKind::to_real) && c.n % 2 == 0;
  const auto plan = fft_plan<C>(pairs ? c.n / 2 : c.n, pairs);
  const int64_t lines = c.outer * c.inner;
  const int64_t lanes = c.n > kMostVectorLength ? 1 : loop.lanes;
  const int64_t tasks = (lines + lanes - 1) / lanes;
  parallel_for_rows(tasks, 20 * c.n * lanes, [&](int64_t first, int64_t last) {
    const FftWork<C> work(2 * (plan->work() + 2) * lanes);
    run_range<T, C>(c, *plan, loop, work.get(), first * lanes, std::min(lines, last * lanes));
  });
}

template <class T>
void run(const KernelCall& k, FftKind kind, const FftLoops& loops) {
  const Array& y = k.out[0];
  if (y.numel == 0) return;
  const Packed<T> x(k.in[0]);
  const bool real_in = kind == FftKind::real, real_out = kind == FftKind::to_real;
  const Array& shape = real_out ? y : k.in[0];  // of the side that has all samples
  const int rank = shape.rank - !(real_in || real_out);
  const int d = normalize_dim(
      real_in || real_out ? k.get_attrs<fft::RealFftAttrs>().dim : k.get_attrs<fft::FftAttrs>().dim,
      rank);
  FftCall<T> c{
      kind, shape.shape[d], 1, 1, x.get(), y.as<T>(), 0, 0, real_in ? 1 : 2, real_out ? 1 : 2};
  for (int i = 0; i < rank; ++i)
    if (i != d) (i < d ? c.outer : c.inner) *= shape.shape[i];
  c.from_samples = real_out ? c.n / 2 + 1 : c.n;
  c.to_samples = real_in ? c.n / 2 + 1 : c.n;
  if constexpr (std::is_same_v<T, double>) {
    c.transpose = loops.transpose_f64;
    run_lines<double, double>(c, loops.f64);
  } else {
    c.transpose = loops.transpose_f32;
    const bool pairs = (real_in || real_out) && c.n % 2 == 0;
    if (fft_has_large_factor(pairs ? c.n / 2 : c.n))
      run_lines<float, double>(c, loops.wide);
    else
      run_lines<float, float>(c, loops.f32);
  }
}

void run(const KernelCall& k, FftKind kind, const FftLoops& loops) {
  k.out[0].dtype == DType::f64 ? run<double>(k, kind, loops) : run<float>(k, kind, loops);
}

}  // namespace

constinit const FftLoops kFftReference = kLoops;

void run_fft(const KernelCall& k, const FftLoops& loops) {
  run(k, k.get_attrs<fft::FftAttrs>().inverse ? FftKind::inverse : FftKind::forward, loops);
}
void run_rfft(const KernelCall& k, const FftLoops& loops) { run(k, FftKind::real, loops); }
void run_irfft(const KernelCall& k, const FftLoops& loops) { run(k, FftKind::to_real, loops); }
void reference_fft(const KernelCall& k) { run_fft(k, kFftReference); }
void reference_rfft(const KernelCall& k) { run_rfft(k, kFftReference); }
void reference_irfft(const KernelCall& k) { run_irfft(k, kFftReference); }

}  // namespace tandem::detail
