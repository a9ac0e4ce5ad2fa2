// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/ranges.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"

namespace tandem::quant {
namespace {

constexpr size_t kBins = 4096;
constexpr double kAverageFactor = 0.01;

constexpr const char* kMethodNames[] = {"min-max", "moving-average", "percentile", "entropy",
                                        "mse"};

// sum p log(p / q) of two histograms, whose sums may differ. Empty bins of q get a little.
double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum_p = 0, sum_q = 0, d = 0;
  for (size_t i = 0; i < p.size(); ++i) sum_p += p[i], sum_q += q[i];
  if (sum_p == 0 || sum_q == 0) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < p.size(); ++i)
    if (p[i] > 0) {
      const double a = p[i] / sum_p, b = std::max(q[i] / sum_q, 1e-10);
      d += a * std::log(a / b);
    }
  return d;
}

// The first `n` bins as `levels` groups, each spread evenly over those of its bins that hold
// something.
std::vector<double> grouped(const std::vector<double>& bins, size_t n, size_t levels) {
  std::vector<double> out(n);
  for (size_t g = 0; g < levels; ++g) {
    const size_t first = g * n / levels, last = (g + 1) * n / levels;
    double sum = 0;
    int filled = 0;
    for (size_t i = first; i < last; ++i) sum += bins[i], filled += bins[i] > 0;
    for (size_t i = first; i < last; ++i)
      if (bins[i] > 0) out[i] = sum / filled;
  }
  return out;
}

// f(values) for all elements, in the order of memory where they lie there in one piece.
template <class F>
void with_values(const Tensor& x, F f) {
  std::vector<int64_t> order(static_cast<size_t>(x.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  const Tensor in_order =
      x.dtype() == DType::f32 && is_host(x.device()) ? permute(x, IntList(order)) : Tensor();
  if (in_order.defined() && in_order.is_contiguous()) {
    f(std::span(static_cast<const float*>(in_order.data_ptr()), static_cast<size_t>(x.numel())));
  } else {
    const std::vector<float> copied = x.to_vector<float>();
    f(std::span(copied));
  }
}

}  // namespace

std::string to_string(Method m) { return kMethodNames[static_cast<size_t>(m)]; }

Method method_of(std::string_view name) {
  const auto* at = std::find(std::begin(kMethodNames), std::end(kMethodNames), name);
  std::vector<std::string> known(std::begin(kMethodNames), std::end(kMethodNames));
  const std::string near =
      at == std::end(kMethodNames) ? nearest_word(std::string(name), known) : "";
  TD_CHECK(at != std::end(kMethodNames), Value,
           "no method of calibration is called '{}'\n{}There are min-max, moving-average, "
           "percentile, entropy and mse.",
           name, near.empty() ? "" : "Did you mean '" + near + "'? ");
  return static_cast<Method>(at - std::begin(kMethodNames));
}

void Seen::see_extremes(const Tensor& x, const std::string& what) {
  if (x.numel() == 0) return;
  double low = 0, high = 0;
  with_values(x, [&](std::span<const float> values) {
    float least = 0, most = 0, rest = 0;  // the rest is 0 where all are finite
    for (const float v : values) {
      least = std::min(least, v);
      most = std::max(most, v);
      rest += v - v;
    }
    const auto odd = rest == 0 ? values.end()
                               : std::find_if_not(values.begin(), values.end(),
                                                  [](float v) { return std::isfinite(v); });
    TD_CHECK(
        odd == values.end(), Value,
        "calibration: {} has the value {}\nQuantisation expects finite numbers: look at the data "
        "and at the network in floating point.",
        what, *odd);
    low = least;
    high = most;
  });
  all_ = {std::min(all_.low, low), std::max(all_.high, high)};
  const double f = batches_ == 0 ? 1 : kAverageFactor;
  average_ = {average_.low + f * (low - average_.low), average_.high + f * (high - average_.high)};
  ++batches_;
}

void Seen::count(const Tensor& x) {
  if (bins_.empty()) bins_.resize(kBins);
  const double span = all_.high - all_.low;
  if (span <= 0) return;
  const double per_unit = static_cast<double>(kBins) / span;
  with_values(x, [&](std::span<const float> values) {
    for (const float v : values) {
      const double at = std::clamp((v - all_.low) * per_unit, 0.0, kBins - 1.0);
      ++bins_[static_cast<size_t>(at)];
    }
  });
}

std::vector<double> Seen::histogram(size_t bins) const {
  if (bins_.empty()) return {};
  std::vector<double> out(bins);
  for (size_t i = 0; i < bins_.size(); ++i) out[i * bins / bins_.size()] += bins_[i];
  return out;
}

double Seen::centre(size_t bin) const {
  return all_.low + (static_cast<double>(bin) + 0.5) * (all_.high - all_.low) / kBins;
}

Range Seen::range(Method method, double percent, int levels) const {
  if (all_.high <= all_.low || (wants_histogram(method) && bins_.empty())) return all_;
  switch (method) {
    case Method::moving_average:
      return average_;
    case Method::percentile:
      return percentile(percent);
    case Method::entropy:
      return entropy(levels);
    case Method::mse:
      return mse(levels);
    default:
      return all_;
  }
}

// What is beyond the percentile is taken from both ends, or from the one that has any.
Range Seen::percentile(double percent) const {
  double total = 0;
  for (const double b : bins_) total += b;
  const bool both = all_.low < 0 && all_.high > 0;
  const double each = total * (100 - percent) / 100 / (both ? 2 : 1);
  const double width = (all_.high - all_.low) / kBins;
  Range r = all_;
  double cut = 0;
  for (size_t i = 0; all_.low < 0 && i < kBins && cut + bins_[i] <= each; ++i) {
    cut += bins_[i];
    r.low += width;
  }
  cut = 0;
  for (size_t i = kBins; all_.high > 0 && i-- > 0 && cut + bins_[i] <= each;) {
    cut += bins_[i];
    r.high -= width;
  }
  return {std::min(r.low, 0.0), std::max(r.high, 0.0)};
}

// Thresholds of the absolute value, from as many bins as there are levels to all.
Range Seen::entropy(int levels) const {
  const double most = std::max(-all_.low, all_.high);
  const bool both = all_.low < 0 && all_.high > 0;
  const auto groups = static_cast<size_t>(both ? levels / 2 : levels);
  constexpr size_t kSizes = 2048, kStride = 8;
  std::vector<double> sizes(kSizes);
  for (size_t i = 0; i < kBins; ++i) {
    const double at = std::abs(centre(i)) / most * kSizes;
    sizes[std::min(static_cast<size_t>(at), kSizes - 1)] += bins_[i];
  }
  sizes[0] = sizes[1];  // a code of its own represents 0 exactly, however often it occurs
  double best = std::numeric_limits<double>::infinity(), beyond = 0;
  size_t keep = kSizes;
  for (size_t n = kSizes; n >= groups; n -= kStride) {
    std::vector<double> p(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(n));
    p.back() += beyond;  // what is clamped has the greatest code
    const double d = divergence(p, grouped(sizes, n, groups));
    if (d < best) best = d, keep = n;
    for (size_t i = n - kStride; i < n; ++i) beyond += sizes[i];
  }
  const double threshold = most * static_cast<double>(keep) / kSizes;
  return {std::max(all_.low, -threshold), std::min(all_.high, threshold)};
}

double Seen::error_of(Range r, int levels) const {
  const double step = (r.high - r.low) / (levels - 1), zero = std::nearbyint(-r.low / step);
  double sum = 0;
  for (size_t i = 0; i < kBins; ++i) {
    if (bins_[i] == 0) continue;
    const double x = centre(i);
    const double code = std::clamp(std::nearbyint(x / step) + zero, 0.0, levels - 1.0);
    const double e = x - (code - zero) * step;
    sum += bins_[i] * e * e;
  }
  return sum;
}

Range Seen::mse(int levels) const {
  constexpr int kTried = 100, kLeast = 20;
  Range best = all_;
  double least = std::numeric_limits<double>::infinity();
  for (int k = kTried; k >= kLeast; --k) {
    const double f = static_cast<double>(k) / kTried;
    const Range r{all_.low * f, all_.high * f};
    if (const double e = error_of(r, levels); e < least) least = e, best = r;
  }
  return best;
}

namespace {
constexpr double kLevels = 255, kMostWord = 32767;
double least_code(DType dtype) { return dtype == DType::i8 ? -128 : 0; }
}  // namespace

Range range_of(Step s, DType dtype) {
  if (dtype == DType::i16) return {-kMostWord * s.scale, kMostWord * s.scale};
  const double low = (least_code(dtype) - static_cast<double>(s.zero)) * s.scale;
  return {low, low + kLevels * s.scale};
}

Step step_of(Range r, DType dtype) {
  const double least = least_code(dtype);
  const bool words = dtype == DType::i16;
  const double span = words ? std::max(-r.low, r.high) : r.high - r.low;
  Step s;
  if (span > 0) s.scale = static_cast<float>(span / (words ? kMostWord : kLevels));
  if (!(s.scale >= std::numeric_limits<float>::min())) s.scale = 1;  // of nothing but zeros
  if (words) return s;
  s.zero = static_cast<int64_t>(
      std::clamp(std::nearbyint(least - r.low / s.scale), least, least + kLevels));
  return s;
}

}  // namespace tandem::quant
