// SPDX-License-Identifier: Apache-2.0
// Loops of sort, topk, nonzero, one_hot and bincount.
#include <algorithm>
#include <numeric>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

// PyTorch's order: NaN is larger than every number.
template <class T>
inline bool less(T a, T b) {
  if constexpr (is_floating(dtype_of<T>)) {
    const auto x = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(a);
    const auto y = static_cast<decltype(x)>(b);
    return x < y || (y != y && x == x);
  } else {
    return a < b;
  }
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
void sort_lanes(const KernelCall& call, int64_t dim, bool descending, int64_t k, bool partial) {
  const Array &x = call.in[0], &values = call.out[0], &indices = call.out[1];
  if (x.numel == 0) return;
  const int d = x.rank ? normalize_dim(dim, x.rank) : 0;
  const int64_t n = x.rank ? x.shape[d] : 1;
  const int64_t xs = x.rank ? x.strides[d] : 0, vs = x.rank ? values.strides[d] : 0,
                is = x.rank ? indices.strides[d] : 0;
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(0, x.numel / n, std::max<int64_t>(1, 4096 / n), [&](int64_t b, int64_t e) {
      std::vector<T> v(static_cast<size_t>(n));
      std::vector<int64_t> order(static_cast<size_t>(n));
      for (int64_t l = b; l < e; ++l) {
        const T* from = x.as<T>() + lane_offset(x, d, l, x.shape);
        for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = from[i * xs];
        std::iota(order.begin(), order.end(), int64_t{0});
        const auto before = [&](int64_t i, int64_t j) {
          const T a = v[static_cast<size_t>(i)], c = v[static_cast<size_t>(j)];
          if (descending ? less<T>(c, a) : less<T>(a, c)) return true;
          if (descending ? less<T>(a, c) : less<T>(c, a)) return false;
          return i < j;
        };
        if (partial)
          std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
        else
          std::sort(order.begin(), order.end(), before);
        T* to = values.as<T>() + lane_offset(values, d, l, x.shape);
        int64_t* at = indices.as<int64_t>() + lane_offset(indices, d, l, x.shape);
        for (int64_t i = 0; i < k; ++i) {
          at[i * is] = order[static_cast<size_t>(i)];
          to[i * vs] = v[static_cast<size_t>(order[static_cast<size_t>(i)])];
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
  sort_lanes(k, a.dim, a.descending, n, false);
}

void run_topk(const KernelCall& k) {
  const SortAttrs& a = k.get_attrs<SortAttrs>();
  sort_lanes(k, a.dim, a.descending, a.k, true);
}

void run_nonzero(const KernelCall& k) {
  const NonzeroAttrs& a = k.get_attrs<NonzeroAttrs>();
  const Array &x = k.in[0], &y = k.out[0];
  int64_t row = 0;
  int64_t* out = y.as<int64_t>();
  visit_dtype(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    int64_t at[kMaxRank] = {};
    for (int64_t e = 0; e < x.numel && row < a.size; ++e) {
      int64_t offset = 0;
      for (int i = 0; i < x.rank; ++i) offset += at[i] * x.strides[i];
      if (is_nonzero(x.as<T>()[offset])) {
        std::copy_n(at, x.rank, out + row * x.rank);
        ++row;
      }
      for (int i = x.rank - 1; i >= 0 && ++at[i] == x.shape[i]; --i) at[i] = 0;
    }
  });
  std::fill(out + row * x.rank, out + a.size * x.rank, a.fill);
}

void run_one_hot(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = k.get_attrs<OneHotAttrs>().num_classes;
  zero_array(y);
  int64_t at[kMaxRank] = {};
  for (int64_t e = 0; e < x.numel; ++e) {
    int64_t offset = 0;
    for (int i = 0; i < x.rank; ++i) offset += at[i] * x.strides[i];
    const int64_t c = index_at(x.data, x.dtype, offset);
    if (c < 0 || c >= n)
      report_error(k, 1, c);
    else
      y.as<int64_t>()[e * n + c] = 1;
    for (int i = x.rank - 1; i >= 0 && ++at[i] == x.shape[i]; --i) at[i] = 0;
  }
}

void run_bincount(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = k.get_attrs<BincountAttrs>().size;
  zero_array(y);
  for (int64_t e = 0; e < x.numel; ++e) {
    const int64_t c = index_at(x.data, x.dtype, e * x.strides[0]);
    if (c < 0 || c >= n)
      report_error(k, 1, c);
    else
      ++y.as<int64_t>()[c];
  }
}

}  // namespace tandem::detail
