// SPDX-License-Identifier: Apache-2.0
// What the loops that read and write by index have in common: checked positions, runs of an index
// tensor. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {

inline constexpr int64_t kIndexGrain = 16384;

// `i` as a position in 0..n-1; n > 0.
inline int64_t checked_place(const KernelCall& k, int64_t i, int64_t n, bool wrap) {
  const int64_t at = wrap && i < 0 ? i + n : i;
  if (TD_LIKELY(at >= 0 && at < n)) return at;
  report_error(k, 1, i);
  return std::clamp<int64_t>(at, 0, n - 1);
}

// An index tensor along a run of positions.
struct IndexRun {
  int64_t size, x_dim;           ///< of x's indexed dim: its size and stride
  int64_t step, x_step, v_step;  ///< of neighbours in the index tensor, x and v
  bool wrap = false;
};

// f(offset in x, offset in v) for the n positions whose index begins at `at`. All is captured by
// value: what f writes could be anything behind a reference.
template <class I, class F>
void each_indexed(const KernelCall& k, const IndexRun& r, const I* at, int64_t n, int64_t x,
                  int64_t v, F f) {
  const int64_t size = r.size;
  const bool wrap = r.wrap;
  const auto along = [=, &k](int64_t step, int64_t x_step, int64_t x_dim, int64_t v_step) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t c = at[j * step];
      if (TD_UNLIKELY(static_cast<uint64_t>(c) >= static_cast<uint64_t>(size)))
        c = checked_place(k, c, size, wrap);
      f(x + j * x_step + c * x_dim, v + j * v_step);
    }
  };
  if (r.step != 1 || r.v_step != 1)
    along(r.step, r.x_step, r.x_dim, r.v_step);
  else if (r.x_step == 0 && r.x_dim == 1)
    along(1, 0, 1, 1);
  else
    along(1, r.x_step, r.x_dim, 1);
}
template <class F>
void each_indexed(const KernelCall& k, const IndexRun& r, const void* index, DType dtype,
                  int64_t from, int64_t n, int64_t x, int64_t v, F f) {
  if (dtype == DType::i64)
    each_indexed(k, r, static_cast<const int64_t*>(index) + from, n, x, v, f);
  else
    each_indexed(k, r, static_cast<const int32_t*>(index) + from, n, x, v, f);
}

template <class F>
void with_size(DType t, F&& f) {
  switch (size_of(t)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

inline void copy_first(const KernelCall& k) {
  if (k.out[0].data != k.in[0].data) copy_array(k.out[0], k.in[0]);
}

}  // namespace tandem::detail
