// SPDX-License-Identifier: Apache-2.0
// sort and topk: the elements of a lane become unsigned keys in the order wanted, which are sorted
// with their positions by digits (least significant first, so equal keys keep their order) or, if
// few of many are wanted, selected.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/index/sort_keys_internal.h"

namespace tandem::detail {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kBuckets = size_t{1} << kDigitBits;
constexpr int64_t kFewElements = 48;   ///< are sorted by comparison
constexpr int64_t kSmallFraction = 8;  ///< topk of less than a part of a lane selects

template <class Key>
struct Keyed {
  Key key;
  uint32_t at;
  bool operator<(const Keyed& o) const { return key != o.key ? key < o.key : at < o.at; }
};

// Sorts v by digits; `other` is as large. Digits that all keys share cost nothing.
template <class Key>
void sort_digits(std::vector<Keyed<Key>>& v, std::vector<Keyed<Key>>& other) {
  constexpr int kDigits = static_cast<int>(sizeof(Key)) * 8 / kDigitBits;
  std::array<std::array<uint32_t, kBuckets>, kDigits> count{};
  for (const Keyed<Key>& e : v)
    for (int d = 0; d < kDigits; ++d)
      ++count[static_cast<size_t>(d)][e.key >> (d * kDigitBits) & (kBuckets - 1)];
  for (int d = 0; d < kDigits; ++d) {
    std::array<uint32_t, kBuckets>& to = count[static_cast<size_t>(d)];
    const int shift = d * kDigitBits;
    if (to[v[0].key >> shift & (kBuckets - 1)] == v.size()) continue;
    uint32_t sum = 0;
    for (uint32_t& n : to) sum += std::exchange(n, sum);
    for (const Keyed<Key>& e : v) other[to[e.key >> shift & (kBuckets - 1)]++] = e;
    v.swap(other);
  }
}

// Whether x may come before `last` among the largest (or smallest) numbers; NaN may, always.
template <class T>
bool may_precede(T x, T last, bool descending) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return may_precede(static_cast<float>(x), static_cast<float>(last), descending);
  else
    return descending ? !(x <= last) : !(x >= last);
}

constexpr int64_t kBlock = 64;

// The same for kBlock elements at once, as vector code.
template <bool kDescending, class T>
bool any_may_precede(const T* x, T last) {
  uint32_t any = 0;
  for (int64_t i = 0; i < kBlock; ++i)
    any |= static_cast<uint32_t>(may_precede(x[i], last, kDescending));
  return any;
}

constexpr int64_t kMostBounded = 16;  ///< up to this k the best of kBlock groups tell a bound

// A number that at least k of n contiguous elements equal or precede: the k-th best of the best
// elements of kBlock groups. NaNs are passed over; they are never behind a bound.
template <bool kDescending, class T>
T bound_of(const T* x, int64_t n, int64_t k) {
  using Limits = std::numeric_limits<T>;
  constexpr bool kInfinite = Limits::has_infinity;
  const T worst = kDescending ? (kInfinite ? -Limits::infinity() : Limits::lowest())
                              : (kInfinite ? Limits::infinity() : Limits::max());
  T best[kBlock];
  std::fill_n(best, kBlock, worst);
  for (int64_t b = 0; b + kBlock <= n; b += kBlock)
    for (int64_t i = 0; i < kBlock; ++i) {
      const T v = x[b + i];
      best[i] = (kDescending ? v > best[i] : v < best[i]) ? v : best[i];
    }
  if (kDescending)
    std::nth_element(best, best + (k - 1), best + kBlock, std::greater<T>());
  else
    std::nth_element(best, best + (k - 1), best + kBlock);
  return best[k - 1];
}

// Collects what may be among the first k of n elements of a line, and cuts back to k now and then.
template <class T, class Key>
class First {
 public:
  First(const T* from, int64_t step, int64_t k, bool descending, std::vector<Keyed<Key>>& v)
      : v_(v), from_(from), step_(step), k_(k), descending_(descending) {
    v_.clear();
  }
  void take(int64_t i) {
    const Key key = key_of(from_[i * step_]);
    const Keyed<Key> e{descending_ ? static_cast<Key>(~key) : key, static_cast<uint32_t>(i)};
    if (full_ && !(e < last_)) return;
    v_.push_back(e);
    if (static_cast<int64_t>(v_.size()) >= 2 * k_ + kBlock / 2) cut();
  }
  /// Whether there is a last one of k, and the element that it is.
  bool full() const { return full_; }
  T last() const { return from_[static_cast<int64_t>(last_.at) * step_]; }
  void finish() {
    if (static_cast<int64_t>(v_.size()) > k_) cut();
    std::sort(v_.begin(), v_.end());
  }

 private:
  void cut() {
    std::nth_element(v_.begin(), v_.begin() + (k_ - 1), v_.end());
    v_.resize(static_cast<size_t>(k_));
    last_ = v_.back();
    full_ = true;
  }
  std::vector<Keyed<Key>>& v_;
  const T* from_;
  int64_t step_, k_;
  bool descending_, full_ = false;
  Keyed<Key> last_{};
};

// The first k of n contiguous elements where a bound is known from the start: what lies behind it
// costs a comparison, in vectors and without branches.
template <bool kDescending, class T, class Key>
void select_bounded(const T* x, int64_t n, int64_t k, std::vector<Keyed<Key>>& v) {
  First<T, Key> first(x, 1, k, kDescending, v);
  const T bound = bound_of<kDescending>(x, n, k);
  const auto behind = [bound](T e) { return kDescending ? e < bound : e > bound; };
  for (int64_t b = 0; b < n; b += kBlock) {
    const int64_t count = std::min(kBlock, n - b);
    if (count == kBlock) {
      uint32_t any = 0;
      for (int64_t i = 0; i < kBlock; ++i) any |= static_cast<uint32_t>(!behind(x[b + i]));
      if (!any) continue;
    }
    uint8_t at[kBlock];
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
      at[found] = static_cast<uint8_t>(i);
      found += !behind(x[b + i]);
    }
    for (int64_t i = 0; i < found; ++i) first.take(b + at[i]);
  }
  first.finish();
}

// The first k of n elements, in order: those that come before the k-th one so far are collected.
// Blocks of 64 in which there is none cost a comparison an element.
template <class T, class Key>
void select_first(const T* from, int64_t step, int64_t n, int64_t k, bool descending,
                  std::vector<Keyed<Key>>& v) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
    if (step == 1 && k <= kMostBounded && n >= 4 * kBlock)
      return descending ? select_bounded<true>(from, n, k, v)
                        : select_bounded<false>(from, n, k, v);
  First<T, Key> first(from, step, k, descending, v);
  for (int64_t b = 0; b < n; b += kBlock) {
    const int64_t end = std::min(n, b + kBlock);
    const T bound = first.full() ? first.last() : T{};
    if (first.full() && step == 1 && end - b == kBlock &&
        !(descending ? any_may_precede<true>(from + b, bound)
                     : any_may_precede<false>(from + b, bound)))
      continue;
    for (int64_t i = b; i < end; ++i)
      if (!first.full() || may_precede(from[i * step], first.last(), descending)) first.take(i);
  }
  first.finish();
}

template <class Key>
void order(std::vector<Keyed<Key>>& v, std::vector<Keyed<Key>>& other) {
  if (static_cast<int64_t>(v.size()) <= kFewElements)
    std::sort(v.begin(), v.end());
  else
    sort_digits(v, other);
}

// The first k of each lane, sorted.
void sort_lanes(const KernelCall& call, int64_t dim, bool descending, int64_t k) {
  const Array &x = call.in[0], &values = call.out[0], &indices = call.out[1];
  if (x.numel == 0 || k == 0) return;
  const int d = x.rank ? normalize_dim(dim, x.rank) : 0;
  const int64_t n = x.rank ? x.shape[d] : 1;
  TD_CHECK(n <= UINT32_MAX, Unsupported, "a line of {} elements; at most 2^32 - 1 can be sorted",
           n);
  const int64_t xs = x.rank ? x.strides[d] : 0, vs = x.rank ? values.strides[d] : 0,
                is = x.rank ? indices.strides[d] : 0;
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Key = decltype(key_of(T{}));
    parallel_for(0, x.numel / n, std::max<int64_t>(1, 4096 / n), [&](int64_t b, int64_t e) {
      const bool few = n > kFewElements && k < n / kSmallFraction;
      std::vector<Keyed<Key>> v, other(static_cast<size_t>(few ? 0 : n));
      for (int64_t l = b; l < e; ++l) {
        const T* from = x.as<T>() + lane_offset(x, d, l, x.shape);
        if (few) {
          select_first(from, xs, n, k, descending, v);
        } else {
          v.resize(static_cast<size_t>(n));
          for (int64_t i = 0; i < n; ++i) {
            const Key key = key_of(from[i * xs]);
            v[static_cast<size_t>(i)] = {descending ? static_cast<Key>(~key) : key,
                                         static_cast<uint32_t>(i)};
          }
          order(v, other);
        }
        T* to = values.as<T>() + lane_offset(values, d, l, x.shape);
        int64_t* at = indices.as<int64_t>() + lane_offset(indices, d, l, x.shape);
        for (int64_t i = 0; i < k; ++i) {
          const auto place = static_cast<int64_t>(v[static_cast<size_t>(i)].at);
          at[i * is] = place;
          to[i * vs] = from[place * xs];
        }
      }
    });
  });
}

}  // namespace

void run_sort(const KernelCall& k) {
  const SortAttrs& a = k.get_attrs<SortAttrs>();
  const Array& x = k.in[0];
  const int64_t n = x.rank ? x.shape[normalize_dim(a.dim, x.rank)] : 1;
  sort_lanes(k, a.dim, a.descending, n);
}

void run_topk(const KernelCall& k) {
  const SortAttrs& a = k.get_attrs<SortAttrs>();
  sort_lanes(k, a.dim, a.descending, a.k);
}

}  // namespace tandem::detail
