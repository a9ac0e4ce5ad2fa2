// SPDX-License-Identifier: Apache-2.0
// kthvalue and the medians by selection: histograms of the keys' leading digits say which keys the
// wanted one is among, until few are left. Of equal elements it is the one that a stable sort puts
// there.
#include <algorithm>
#include <array>
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/sort_keys_internal.h"
#include "tandem/ops/reduce/order_statistics_internal.h"

namespace tandem::detail {
namespace {

constexpr int kDigitBits = 11;
constexpr int64_t kFew = 256;      ///< keys that are selected by comparison
constexpr int64_t kTogether = 16;  ///< lines whose elements lie apart

/// The key of rank `rank` (from 0) and how many keys are smaller.
template <class Key>
struct Selected {
  Key key;
  int64_t smaller;
};

// The n keys are overwritten.
template <class Key>
Selected<Key> select(Key* keys, int64_t n, int64_t rank) {
  constexpr size_t kBuckets = size_t{1} << kDigitBits;
  int64_t smaller = 0;
  for (int shift = 8 * static_cast<int>(sizeof(Key)); shift > 0 && n > kFew;) {
    const int bits = std::min(kDigitBits, shift);
    shift -= bits;
    const Key mask = static_cast<Key>((Key{1} << bits) - 1);
    std::array<uint32_t, kBuckets> count{};
    for (int64_t i = 0; i < n; ++i) ++count[keys[i] >> shift & mask];
    size_t digit = 0;
    int64_t before = 0;
    while (before + count[digit] <= rank) before += count[digit++];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {  // without branches
      const Key k = keys[i];
      keys[kept] = k;
      kept += (k >> shift & mask) == digit;
    }
    n = kept;
    smaller += before;
    rank -= before;
  }
  std::nth_element(keys, keys + rank, keys + n);
  const Key key = keys[rank];
  for (int64_t i = 0; i < n; ++i) smaller += keys[i] < key;
  return {key, smaller};
}

int64_t rank_of(const KthvalueAttrs& a, int64_t n, int64_t nans) {
  switch (static_cast<Rank>(a.rank)) {
    case Rank::kth:
      return a.k - 1;
    case Rank::median:
      return nans > 0 ? n - nans : (n - 1) / 2;
    default:
      return std::max<int64_t>(n - 1 - nans, 0) / 2;
  }
}

bool supports(const KernelCall& c) {
  return !c.in[0].is_scalar && c.in[0].numel > 0 &&
         c.in[0].shape[normalize_dim(c.get_attrs<KthvalueAttrs>().dim, c.in[0].rank)] <= UINT32_MAX;
}

// Place of the element of rank `rank` among n, whose keys these are; `scratch` is as large.
template <class Key>
int64_t place_of(const Key* keys, int64_t n, int64_t rank, Key* scratch) {
  std::copy_n(keys, n, scratch);
  const Selected<Key> s = select(scratch, n, rank);
  int64_t at = 0;
  for (int64_t equal = rank - s.smaller;; ++at)
    if (keys[at] == s.key && equal-- == 0) return at;
}

// Lines l..l+count-1, which are read together: beside each other, they share cache lines.
template <class T, class Key>
void run_lines(const KernelCall& c, int d, int64_t l, int64_t count, Key* keys, Key* scratch) {
  const Array &x = c.in[0], &values = c.out[0], &indices = c.out[1];
  const int64_t n = x.shape[d], step = x.strides[d];
  const T* from[kTogether];
  for (int64_t j = 0; j < count; ++j) from[j] = x.as<T>() + lane_offset(x, d, l + j, x.shape);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < count; ++j) keys[j * n + i] = key_of(from[j][i * step]);
  for (int64_t j = 0; j < count; ++j) {
    int64_t nans = 0;
    if constexpr (is_floating(dtype_of<T>))
      for (int64_t i = 0; i < n; ++i) nans += keys[j * n + i] == static_cast<Key>(~Key{0});
    const int64_t at =
        place_of(keys + j * n, n, rank_of(c.get_attrs<KthvalueAttrs>(), n, nans), scratch);
    values.as<T>()[lane_offset(values, d, l + j, x.shape)] = from[j][at * step];
    indices.as<int64_t>()[lane_offset(indices, d, l + j, x.shape)] = at;
  }
}

void run(const KernelCall& c) {
  const Array& x = c.in[0];
  const int d = normalize_dim(c.get_attrs<KthvalueAttrs>().dim, x.rank);
  const int64_t n = x.shape[d], together = x.strides[d] == 1 ? 1 : kTogether;
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Key = decltype(key_of(T{}));
    parallel_for(0, x.numel / n, std::max<int64_t>(1, 4096 / n), [&](int64_t first, int64_t last) {
      std::vector<Key> keys(static_cast<size_t>((together + 1) * n));
      for (int64_t l = first; l < last; l += together)
        run_lines<T>(c, d, l, std::min(together, last - l), keys.data(),
                     keys.data() + together * n);
    });
  });
}

}  // namespace

void register_kthvalue_kernels() {
  register_kernel(DeviceKind::cpu, op::kthvalue, {supports, nullptr, nullptr, run});
}

}  // namespace tandem::detail
