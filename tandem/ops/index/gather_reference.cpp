// SPDX-License-Identifier: Apache-2.0
// Loops of gather and of the scatters, whose index tensors name an element each.
#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/index/indexed_internal.h"
#include "tandem/ops/index/positions_internal.h"
#include "tandem/ops/index/scatter.h"

namespace tandem::detail {
namespace {

// The walk of gather and scatter over the index tensor, in row-major order.
struct IndexWalk {
  const KernelCall& k;
  const Array &x, &index, &v;
  int dim, last;
  int64_t cols, rows, size;

  IndexWalk(const KernelCall& k, int64_t d, const Array& x, const Array& index, const Array& v)
      : k(k),
        x(x),
        index(index),
        v(v),
        dim(x.rank ? normalize_dim(d, x.rank) : 0),
        last(x.rank - 1),
        cols(x.rank ? index.shape[last] : 1),
        rows(cols ? index.numel / cols : 0),
        size(x.rank ? x.shape[dim] : 1) {}

  /// f(offset in x, offset in v) for positions [begin, end) of columns [col, col + width) of the
  /// last dim.
  template <class F>
  void part(int64_t begin, int64_t end, int64_t col, int64_t width, F&& f) const {
    int64_t shape[kMaxRank], base[kMaxRank];  // x's strides without `dim`, which the index replaces
    for (int i = 0; i < x.rank; ++i) {
      shape[i] = i == last ? width : index.shape[i];
      base[i] = i == dim ? 0 : x.strides[i];
    }
    const Positions at(shape, x.rank, {base, index.strides, v.strides});
    int64_t start[3] = {};
    if (x.rank) {
      start[0] = col * base[last];
      start[1] = col * index.strides[last];
      start[2] = col * v.strides[last];
    }
    at.runs(begin, end - begin, [&](int64_t, int64_t n, const int64_t* offset) {
      const int64_t xo = start[0] + offset[0], io = start[1] + offset[1], vo = start[2] + offset[2];
      const IndexRun r{size, x.rank ? x.strides[dim] : 0, at.step(1), at.step(0), at.step(2)};
      each_indexed(k, r, index.data, index.dtype, io, n, xo, vo, f);
    });
  }
  bool empty() const {
    if (index.numel == 0) return true;
    if (size == 0) report_error(k, 1, index_at(index.data, index.dtype, 0));
    return x.numel == 0;
  }
};

// put(offset in x, offset in v) for each position. Two can hit the same place only if they differ
// just in `dim`: threads split another dim.
template <class F>
void scatter_by(const IndexWalk& w, F put) {
  if (w.dim == w.last)
    parallel_for(0, w.rows, std::max<int64_t>(1, kIndexGrain / std::max<int64_t>(w.cols, 1)),
                 [&](int64_t b, int64_t e) { w.part(b * w.cols, e * w.cols, 0, w.cols, put); });
  else
    parallel_for(0, w.cols, std::max<int64_t>(16, kIndexGrain / std::max<int64_t>(w.rows, 1)),
                 [&](int64_t b, int64_t e) { w.part(0, w.rows * (e - b), b, e - b, put); });
}
template <class T, bool kAdd>
void scatter_as(const IndexWalk& w) {
  scatter_by(w, [x = w.x.as<T>(), v = w.v.as<T>()](int64_t to, int64_t from) {
    x[to] = kAdd ? add_as<T>(x[to], v[from]) : v[from];
  });
}

template <class T>
bool beats(T candidate, T best, bool largest) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return beats(static_cast<float>(candidate), static_cast<float>(best), largest);
  else if constexpr (std::is_floating_point_v<T>)
    return best == best &&
           (candidate != candidate || (largest ? candidate > best : candidate < best));
  else
    return largest ? candidate > best : candidate < best;
}
template <class T, bool kLargest>
void scatter_extreme_as(const IndexWalk& w) {
  scatter_by(w, [x = w.x.as<T>(), v = w.v.as<T>()](int64_t to, int64_t from) {
    const T best = x[to], candidate = v[from];
    x[to] = beats(candidate, best, kLargest) ? candidate : best;
  });
}

}  // namespace

void run_gather(const KernelCall& k) {
  const Array& y = k.out[0];
  const IndexWalk w(k, k.get_attrs<GatherAttrs>().dim, k.in[0], k.in[1], y);
  if (w.empty()) return zero_array(y);
  with_size(y.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = k.in[0].as<T>();
    T* out = y.as<T>();
    parallel_for(0, y.numel, kIndexGrain, [&](int64_t b, int64_t e) {
      w.part(b, e, 0, w.cols, [out, x](int64_t from, int64_t to) { out[to] = x[from]; });
    });
  });
}

void run_scatter(const KernelCall& k) {
  copy_first(k);
  const IndexWalk w(k, k.get_attrs<GatherAttrs>().dim, k.out[0], k.in[1], k.in[2]);
  if (!w.empty()) with_size(k.out[0].dtype, [&](auto tag) { scatter_as<decltype(tag), false>(w); });
}

void run_scatter_add(const KernelCall& k) {
  copy_first(k);
  const IndexWalk w(k, k.get_attrs<GatherAttrs>().dim, k.out[0], k.in[1], k.in[2]);
  if (!w.empty())
    visit_dtype(k.out[0].dtype, [&](auto tag) { scatter_as<decltype(tag), true>(w); });
}

// Places that are written to begin with one of their sources if x does not count itself.
void run_scatter_extreme(const KernelCall& k) {
  const auto& a = k.get_attrs<ScatterExtremeAttrs>();
  copy_first(k);
  const IndexWalk w(k, a.dim, k.out[0], k.in[1], k.in[2]);
  if (w.empty()) return;
  if (!a.include_self)
    with_size(k.out[0].dtype, [&](auto tag) { scatter_as<decltype(tag), false>(w); });
  visit_dtype(k.out[0].dtype, [&](auto tag) {
    using T = decltype(tag);
    a.largest ? scatter_extreme_as<T, true>(w) : scatter_extreme_as<T, false>(w);
  });
}

}  // namespace tandem::detail
