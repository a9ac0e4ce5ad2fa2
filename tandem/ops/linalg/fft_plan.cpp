// SPDX-License-Identifier: Apache-2.0
// Plans of Fourier transforms: the radices of a length, roots of unity, Bluestein's filter.
#include <cmath>
#include <list>
#include <mutex>
#include <numbers>
#include <utility>

#include "tandem/ops/linalg/fft_internal.h"

namespace tandem::detail {
namespace {

// exp(-2 pi i k / n), from an angle of at most 45 degrees. n < 2^60.
std::pair<double, double> root(int64_t k, int64_t n) {
  k %= n;
  const bool below = 2 * k > n;  // the mirror image has the opposite imaginary part
  if (below) k = n - k;
  const bool left = 4 * k > n;  // 90 to 180 degrees
  // From here on angles are pi * a / n.
  int64_t a = left ? n - 2 * k : 2 * k;
  const bool steep = 4 * a > n;
  if (steep) a = n - 2 * a;
  const double angle =
      std::numbers::pi * static_cast<double>(a) / static_cast<double>(steep ? 2 * n : n);
  double c = std::cos(angle), s = std::sin(angle);
  if (steep) std::swap(c, s);
  return {left ? -c : c, below ? s : -s};
}
template <class C>
void add_root(std::vector<C>& v, int64_t k, int64_t n) {
  const auto [c, s] = root(k, n);
  v.push_back(static_cast<C>(c));
  v.push_back(static_cast<C>(s));
}

std::vector<int> radices_of(int64_t n) {
  std::vector<int> r;
  for (int radix : {8, 4, 2, 3, 5})
    while (n % radix == 0 && !(radix == 8 && n == 16)) {  // 16 is 4 * 4
      r.push_back(radix);
      n /= radix;
    }
  for (int p = 7; p <= kMostFftRadix && n > 1; ++p)
    for (; n % p == 0; n /= p) r.push_back(p);
  return r;
}

template <class C>
void add_passes(FftPlan<C>& plan) {
  plan.radices = radices_of(plan.n);
  int64_t left = plan.n;
  for (int radix : plan.radices) {
    for (int64_t p = 0; p < left / radix; ++p)
      for (int j = 1; j < radix; ++j) add_root(plan.twiddles, p * j, left);
    if (radix > 5 && radix != 8)
      for (int j = 0; j < radix; ++j) add_root(plan.roots, j, radix);
    left /= radix;
  }
}

// y = x * chirp convolved with the chirp's conjugate, times the chirp; the filter is that
// conjugate, wrapped around and transformed.
void add_convolution(FftPlan<double>& plan) {
  int64_t size = 1;
  while (size < 2 * plan.n - 1) size *= 2;
  plan.inner = fft_plan<double>(size, false);
  const auto n = static_cast<uint64_t>(plan.n);
  std::vector<double> around(static_cast<size_t>(2 * size));
  for (uint64_t i = 0; i < n; ++i) {
    add_root(plan.chirp, static_cast<int64_t>(i * i % (2 * n)), 2 * plan.n);  // i < 2^31
    const double c = plan.chirp[2 * i], s = -plan.chirp[2 * i + 1];
    for (const uint64_t at : {i, (static_cast<uint64_t>(size) - i) % static_cast<uint64_t>(size)}) {
      around[2 * at] = c;
      around[2 * at + 1] = s;
    }
  }
  plan.filter.resize(around.size());
  std::vector<double> work(static_cast<size_t>(2 * plan.inner->work() + 4));
  FftLines<double> line{FftKind::forward, size, 1, {around.data()}, {plan.filter.data()}, 2, 2};
  kFftReference.f64.alone(*plan.inner, line, work.data());
}

constexpr size_t kMostCachedBytes = 32 << 20;  // of one plan

template <class C>
std::shared_ptr<const FftPlan<C>> new_plan(int64_t n, bool real) {
  auto plan = std::make_shared<FftPlan<C>>();
  plan->n = n;
  if constexpr (std::is_same_v<C, double>) {
    fft_has_large_factor(n) ? add_convolution(*plan) : add_passes(*plan);
  } else {
    add_passes(*plan);
  }
  if (real)
    for (int64_t k = 0; k <= n; ++k) add_root(plan->half, k, 2 * n);
  return plan;
}

}  // namespace

bool fft_has_large_factor(int64_t n) {
  for (int64_t p = 2; p <= kMostFftRadix; ++p)
    while (n % p == 0) n /= p;
  return n > 1;
}

template <class C>
std::shared_ptr<const FftPlan<C>> fft_plan(int64_t n, bool real) {
  struct Entry {
    int64_t n;
    bool real;
    std::shared_ptr<const FftPlan<C>> plan;
  };
  static std::mutex mutex;
  static std::list<Entry> recent;  // the latest first
  {
    const std::lock_guard lock(mutex);
    for (auto it = recent.begin(); it != recent.end(); ++it)
      if (it->n == n && it->real == real) {
        recent.splice(recent.begin(), recent, it);
        return it->plan;
      }
  }
  auto plan = new_plan<C>(n, real);
  const size_t numbers =
      plan->twiddles.size() + plan->half.size() + plan->chirp.size() + plan->filter.size();
  if (numbers * sizeof(C) > kMostCachedBytes) return plan;
  const std::lock_guard lock(mutex);
  for (const Entry& e : recent)
    if (e.n == n && e.real == real) return e.plan;  // another thread was faster
  recent.push_front({n, real, plan});
  if (recent.size() > 16) recent.pop_back();
  return plan;
}
template std::shared_ptr<const FftPlan<float>> fft_plan(int64_t n, bool real);
template std::shared_ptr<const FftPlan<double>> fft_plan(int64_t n, bool real);

}  // namespace tandem::detail
