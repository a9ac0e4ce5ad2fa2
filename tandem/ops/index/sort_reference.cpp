// SPDX-License-Identifier: Apache-2.0
// sort and topk: the elements of a lane become unsigned keys in the order wanted, which are sorted
// with their positions by digits (least significant first, so equal keys keep their order) or, if
// few of many are wanted, selected.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"

namespace tandem::detail {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kBuckets = size_t{1} << kDigitBits;
constexpr int64_t kFewElements = 48;   ///< are sorted by comparison
constexpr int64_t kSmallFraction = 8;  ///< topk of less than a part of a lane selects

// An unsigned number that orders like `x` does: PyTorch's order, in which NaN is larger than every
// number and all NaNs are equal, as are both zeros.
template <class T>
auto key_of(T x) {
  if constexpr (is_floating(dtype_of<T>)) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    using Key = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;
    constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
    const Wide v = static_cast<Wide>(x) + Wide(0);  // -0 becomes 0
    Key bits;
    std::memcpy(&bits, &v, sizeof bits);
    return v != v         ? static_cast<Key>(~Key{0})
           : bits & kSign ? static_cast<Key>(~bits)
                          : bits | kSign;
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<uint32_t>(x);
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<uint64_t>(x) ^ (std::is_signed_v<T> ? uint64_t{1} << 63 : 0);
  } else {
    return static_cast<uint32_t>(static_cast<int64_t>(x) + (int64_t{1} << 31));
  }
}

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

// Brings the first k of v to its beginning, in order.
template <class Key>
void order_first(std::vector<Keyed<Key>>& v, std::vector<Keyed<Key>>& other, int64_t k) {
  const auto n = static_cast<int64_t>(v.size());
  if (n <= kFewElements)
    std::sort(v.begin(), v.end());
  else if (k < n / kSmallFraction)
    std::partial_sort(v.begin(), v.begin() + k, v.end());
  else
    sort_digits(v, other);
}

// Offset of lane `l` (a position in all dims but `dim`).
int64_t lane_offset(const Array& a, int dim, int64_t l, const int64_t* shape) {
  int64_t offset = 0;
  for (int i = a.rank - 1; i >= 0; --i) {
    if (i == dim) continue;
    offset += l % shape[i] * a.strides[i];
    l /= shape[i];
  }
  return offset;
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
      std::vector<Keyed<Key>> v(static_cast<size_t>(n)), other(v.size());
      for (int64_t l = b; l < e; ++l) {
        const T* from = x.as<T>() + lane_offset(x, d, l, x.shape);
        for (int64_t i = 0; i < n; ++i) {
          const Key key = key_of(from[i * xs]);
          v[static_cast<size_t>(i)] = {descending ? static_cast<Key>(~key) : key,
                                       static_cast<uint32_t>(i)};
        }
        order_first(v, other, k);
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
