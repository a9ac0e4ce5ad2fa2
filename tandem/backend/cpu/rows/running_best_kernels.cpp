// SPDX-License-Identifier: Apache-2.0
// cummax and cummin along lines that lie in one piece. Most elements of a line change nothing, so
// blocks are compared with the best so far first and then filled; the loops of scans compute each
// element from the one before.
#include <algorithm>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/reduce_attrs.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem::detail {
namespace {

constexpr int64_t kBlock = 32;

int scanned_dim(const KernelCall& c) {
  return normalize_dim(c.get_attrs<ScanAttrs>().dim, c.in[0].rank);
}

bool best_supports(const KernelCall& c) {
  const Array& x = c.in[0];
  const bool known = x.dtype == DType::f32 || x.dtype == DType::f64 || x.dtype == DType::i32 ||
                     x.dtype == DType::i64;
  return known && x.rank > 0 && x.contiguous && scanned_dim(c) == x.rank - 1;
}

// Does x take the place of the best so far? Of equal ones the last does; after a NaN only a NaN.
template <bool largest, class T>
bool replaces(T x, T best) {
  const bool worse = largest ? x < best : x > best;
  return !worse && (best == best || x != x);
}

template <bool largest, class T>
void best_of_line(const T* x, int64_t n, T* values, int64_t* indices) {
  T best = x[0];
  int64_t at = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    int changes = 0;
    for (int64_t e = 0; e < count; ++e) changes += replaces<largest>(x[i + e], best);
    if (changes == 0) {
      std::fill_n(values + i, count, best);
      std::fill_n(indices + i, count, at);
      continue;
    }
    for (int64_t e = i; e < i + count; ++e) {
      if (replaces<largest>(x[e], best)) {
        best = x[e];
        at = e;
      }
      values[e] = best;
      indices[e] = at;
    }
  }
}

template <bool largest, class T>
void best_of_lines(const KernelCall& c) {
  const Array& x = c.in[0];
  const int64_t n = x.shape[x.rank - 1], lines = n ? x.numel / n : 0;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1));
  parallel_for(0, lines, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      best_of_line<largest>(x.as<T>() + i * n, n, c.out[0].as<T>() + i * n,
                            c.out[1].as<int64_t>() + i * n);
  });
}

template <bool largest>
void best_run(const KernelCall& c) {
  switch (c.in[0].dtype) {
    case DType::f32:
      return best_of_lines<largest, float>(c);
    case DType::f64:
      return best_of_lines<largest, double>(c);
    case DType::i32:
      return best_of_lines<largest, int32_t>(c);
    default:
      return best_of_lines<largest, int64_t>(c);
  }
}

}  // namespace

void register_running_best_kernels() {
  register_kernel(DeviceKind::cpu, op::cummax, {best_supports, nullptr, nullptr, best_run<true>});
  register_kernel(DeviceKind::cpu, op::cummin, {best_supports, nullptr, nullptr, best_run<false>});
}

}  // namespace tandem::detail
