// SPDX-License-Identifier: Apache-2.0
// Loops that read and write by index. An index out of range is reported and clamped: nothing
// outside is touched. Indices that name the same place are processed in order, whatever the number
// of threads.
#include "tandem/ops/index/index_reference_internal.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kGrain = 16384;

// `i` as a position in 0..n-1; n > 0.
inline int64_t checked(const KernelCall& k, int64_t i, int64_t n, bool wrap) {
  const int64_t at = wrap && i < 0 ? i + n : i;
  if (TD_LIKELY(at >= 0 && at < n)) return at;
  report_error(k, 1, i);
  return std::clamp<int64_t>(at, 0, n - 1);
}

// Offsets of all positions of `shape` in row-major order.
std::vector<int64_t> offsets_of(const int64_t* shape, const int64_t* strides, int rank) {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= shape[i];
  std::vector<int64_t> out(static_cast<size_t>(n));
  int64_t at[kMaxRank] = {}, offset = 0;
  for (int64_t e = 0; e < n; ++e) {
    out[static_cast<size_t>(e)] = offset;
    for (int i = rank - 1; i >= 0; --i) {
      offset += strides[i];
      if (++at[i] < shape[i]) break;
      offset -= at[i] * strides[i];
      at[i] = 0;
    }
  }
  return out;
}

// One call of index, index_put or index_backward. x has the indexed dims, v the dims of the index
// tensors in their place: both are outer x (indexed | index dims) x inner.
struct Places {
  Array x, v;
  int64_t outer = 1, count = 1, inner = 1;
  std::vector<int64_t> x_outer, v_outer;  ///< offset of each outer position
  std::vector<int64_t> x_at, v_at;        ///< offset of each index position; x_at -1: skipped
  std::vector<int64_t> row;               ///< position in the first indexed dim
  std::vector<int64_t> x_inner, v_inner;  ///< empty when both are dense
  int64_t rows = 1;                       ///< size of the first indexed dim
};

bool dense_inner(const Array& a, int first) {
  int64_t step = 1;
  for (int i = a.rank - 1; i >= first; --i) {
    if (a.shape[i] != 1 && a.strides[i] != step) return false;
    step *= a.shape[i];
  }
  return true;
}

// False when there is nothing to index (a dim of size 0 is reported if it was indexed).
bool find_places(const KernelCall& k, const IndexAttrs& a, int first, Places& p) {
  const Array &x = p.x, &v = p.v;
  const int n = k.n_in - first, d = normalize_dim(a.dim, x.rank);
  const int irank = v.rank - (x.rank - n);
  p.x_outer = offsets_of(x.shape, x.strides, d);
  p.v_outer = offsets_of(v.shape, v.strides, d);
  p.outer = static_cast<int64_t>(p.x_outer.size());
  p.v_at = offsets_of(v.shape + d, v.strides + d, irank);
  p.count = static_cast<int64_t>(p.v_at.size());
  p.rows = x.shape[d];
  for (int i = d + n; i < x.rank; ++i) p.inner *= x.shape[i];
  if (p.outer == 0 || p.count == 0 || p.inner == 0) return false;
  for (int i = 0; i < n; ++i)
    if (x.shape[d + i] == 0) {
      report_error(k, 1, index_at(k.in[first + i].data, k.in[first + i].dtype, 0));
      return false;
    }
  if (!dense_inner(x, d + n) || !dense_inner(v, d + irank)) {
    p.x_inner = offsets_of(x.shape + d + n, x.strides + d + n, x.rank - d - n);
    p.v_inner = offsets_of(v.shape + d + irank, v.strides + d + irank, x.rank - d - n);
  }
  p.x_at.assign(static_cast<size_t>(p.count), 0);
  p.row.assign(static_cast<size_t>(p.count), 0);
  for (int i = 0; i < n; ++i) {
    const Array& index = k.in[first + i];
    // Strides of this tensor broadcast to the common shape.
    int64_t strides[kMaxRank] = {};
    for (int r = 0; r < index.rank; ++r)
      if (index.shape[r] != 1) strides[irank - index.rank + r] = index.strides[r];
    const std::vector<int64_t> at = offsets_of(v.shape + d, strides, irank);
    const int64_t size = x.shape[d + i], step = x.strides[d + i];
    for (size_t e = 0; e < at.size(); ++e) {
      const int64_t value = index_at(index.data, index.dtype, at[e]);
      if (i == n - 1 && a.skip >= 0 && value == a.skip) {
        p.x_at[e] = -1;
        continue;
      }
      const int64_t c = checked(k, value, size, a.wrap);
      if (i == 0) p.row[e] = c;
      p.x_at[e] += c * step;
    }
  }
  return true;
}

// f(outer position, first index position, last) for the blocks [b, e) of all.
template <class F>
void for_runs(const Places& p, int64_t b, int64_t e, F&& f) {
  while (b < e) {
    const int64_t o = b / p.count, i = b % p.count, n = std::min(e - b, p.count - i);
    f(static_cast<size_t>(o), static_cast<size_t>(i), static_cast<size_t>(i + n));
    b += n;
  }
}

// v[e] = x[at e], blocks of `inner` elements.
template <class T>
void read_places(const Places& p) {
  const int64_t grain = std::max<int64_t>(1, kGrain / p.inner);
  parallel_for(0, p.outer * p.count, grain, [&](int64_t b, int64_t e) {
    for_runs(p, b, e, [&](size_t o, size_t first, size_t last) {
      const T* x = p.x.as<T>() + p.x_outer[o];
      T* v = p.v.as<T>() + p.v_outer[o];
      if (!p.x_inner.empty()) {
        for (size_t i = first; i < last; ++i)
          for (size_t j = 0; j < p.x_inner.size(); ++j)
            v[p.v_at[i] + p.v_inner[j]] = x[p.x_at[i] + p.x_inner[j]];
      } else if (p.inner == 1) {
        for (size_t i = first; i < last; ++i) v[p.v_at[i]] = x[p.x_at[i]];
      } else {
        const size_t bytes = static_cast<size_t>(p.inner) * sizeof(T);
        for (size_t i = first; i < last; ++i)
          std::memcpy(static_cast<void*>(v + p.v_at[i]), x + p.x_at[i], bytes);
      }
    });
  });
}

template <class T, bool kAdd>
inline void write_block(const Places& p, T* to, const T* from) {
  const auto put = [](T& y, T x) { y = kAdd ? add_as<T>(y, x) : x; };
  if (p.x_inner.empty())
    for (int64_t j = 0; j < p.inner; ++j) put(to[j], from[j]);
  else
    for (size_t j = 0; j < p.x_inner.size(); ++j) put(to[p.x_inner[j]], from[p.v_inner[j]]);
}

// x[at e] = or += v[e]. Threads own ranges of x's rows; each walks the indices in order.
template <class T, bool kAdd>
void write_places(const Places& p) {
  T* x = p.x.as<T>();
  const T* v = p.v.as<T>();
  const auto part = [&](int64_t o0, int64_t o1, int64_t r0, int64_t r1) {
    for (int64_t o = o0; o < o1; ++o)
      for (int64_t i = 0; i < p.count; ++i) {
        const size_t e = static_cast<size_t>(i), f = static_cast<size_t>(o);
        if (p.x_at[e] < 0 || p.row[e] < r0 || p.row[e] >= r1) continue;
        write_block<T, kAdd>(p, x + p.x_outer[f] + p.x_at[e], v + p.v_outer[f] + p.v_at[e]);
      }
  };
  const int64_t per_outer = p.count * p.inner;
  if (p.outer >= 8)
    parallel_for(0, p.outer, std::max<int64_t>(1, kGrain / per_outer),
                 [&](int64_t b, int64_t e) { part(b, e, 0, p.rows); });
  else if (p.inner >= 8 && p.outer * per_outer >= 2 * kGrain)
    parallel_for(0, p.rows, std::max<int64_t>(1, p.rows / 64),
                 [&](int64_t b, int64_t e) { part(0, p.outer, b, e); });
  else
    part(0, p.outer, 0, p.rows);
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

void write_all(const Places& p, bool accumulate) {
  if (!accumulate)
    with_size(p.x.dtype, [&](auto tag) { write_places<decltype(tag), false>(p); });
  else
    visit_dtype(p.x.dtype, [&](auto tag) { write_places<decltype(tag), true>(p); });
}

void copy_first(const KernelCall& k) {
  if (k.out[0].data != k.in[0].data) copy_array(k.out[0], k.in[0]);
}

char* at_offset(const Array& a, int64_t elements) {
  return a.as<char>() + elements * static_cast<int64_t>(size_of(a.dtype));
}

}  // namespace

void run_index(const KernelCall& k) {
  Places p;
  p.x = k.in[0];
  p.v = k.out[0];
  IndexAttrs a = k.get_attrs<IndexAttrs>();
  a.skip = -1;  // only used by the derivative
  if (find_places(k, a, 1, p))
    with_size(p.x.dtype, [&](auto tag) { read_places<decltype(tag)>(p); });
  else
    zero_array(k.out[0]);
}

void run_index_put(const KernelCall& k) {
  const IndexAttrs& a = k.get_attrs<IndexAttrs>();
  copy_first(k);
  Places p;
  p.x = k.out[0];
  p.v = k.in[1];
  if (find_places(k, a, 2, p)) write_all(p, a.accumulate);
}

void run_index_backward(const KernelCall& k) {
  Places p;
  p.x = k.out[0];
  p.v = k.in[0];
  zero_array(k.out[0]);
  if (find_places(k, k.get_attrs<IndexAttrs>(), 1, p)) write_all(p, true);
}

void run_region_put(const KernelCall& k) {
  const RegionAttrs& a = k.get_attrs<RegionAttrs>();
  const Array &v = k.in[1], &y = k.out[0];
  copy_first(k);
  if (v.numel == 0) return;
  Strides s;
  int64_t offset = 0;
  for (int i = 0; i < y.rank; ++i) {
    offset += a.start[i].raw() * y.strides[i];
    s[i] = a.step[i].raw() * y.strides[i];
  }
  if (!a.accumulate) {
    strided_copy(at_offset(y, offset), s.data(), v.data, v.strides, v.shape, v.rank,
                 size_of(y.dtype));
    return;
  }
  const std::vector<int64_t> to = offsets_of(v.shape, s.data(), v.rank);
  const std::vector<int64_t> from = offsets_of(v.shape, v.strides, v.rank);
  visit_dtype(y.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* base = y.as<T>() + offset;
    for (size_t e = 0; e < to.size(); ++e) base[to[e]] = add_as<T>(base[to[e]], v.as<T>()[from[e]]);
  });
}

namespace {

// The walk of gather and scatter over the index tensor: f(offset in x, offset in v) for each
// element. Columns [b, e) of the last dim, rows [rb, re) of the rest.
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

  template <class F>
  void part(int64_t rb, int64_t re, int64_t b, int64_t e, F&& f) const {
    if (index.dtype == DType::i64)
      part_of<int64_t>(rb, re, b, e, f);
    else
      part_of<int32_t>(rb, re, b, e, f);
  }
  template <class I, class F>
  void part_of(int64_t rb, int64_t re, int64_t b, int64_t e, F&& f) const {
    const int64_t xd = x.rank ? x.strides[dim] : 0;
    const int64_t xs = x.rank && dim != last ? x.strides[last] : 0;
    const int64_t is = x.rank ? index.strides[last] : 0, vs = x.rank ? v.strides[last] : 0;
    const int64_t n = size;
    for (int64_t r = rb; r < re; ++r) {
      int64_t xo = 0, io = 0, vo = 0, rest = r;
      for (int i = last - 1; i >= 0; --i) {
        const int64_t c = rest % index.shape[i];
        rest /= index.shape[i];
        if (i != dim) xo += c * x.strides[i];
        io += c * index.strides[i];
        vo += c * v.strides[i];
      }
      const I* at = index.as<I>() + io;
      for (int64_t j = b; j < e; ++j) {
        int64_t c = at[j * is];
        if (TD_UNLIKELY(static_cast<uint64_t>(c) >= static_cast<uint64_t>(n)))
          c = checked(k, c, n, false);
        f(xo + j * xs + c * xd, vo + j * vs);
      }
    }
  }
  bool empty() const {
    if (index.numel == 0) return true;
    if (size == 0) report_error(k, 1, index_at(index.data, index.dtype, 0));
    return x.numel == 0;
  }
};

template <class T, bool kAdd>
void scatter_as(const IndexWalk& w) {
  T* x = w.x.as<T>();
  const T* v = w.v.as<T>();
  const auto put = [&](int64_t to, int64_t from) {
    x[to] = kAdd ? add_as<T>(x[to], v[from]) : v[from];
  };
  // Two elements can hit the same place only if they differ just in `dim`: threads split another
  // dim.
  if (w.dim == w.last)
    parallel_for(0, w.rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(w.cols, 1)),
                 [&](int64_t b, int64_t e) { w.part(b, e, 0, w.cols, put); });
  else
    parallel_for(0, w.cols, std::max<int64_t>(16, kGrain / std::max<int64_t>(w.rows, 1)),
                 [&](int64_t b, int64_t e) { w.part(0, w.rows, b, e, put); });
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
    parallel_for(0, w.rows, std::max<int64_t>(1, kGrain / w.cols), [&](int64_t b, int64_t e) {
      w.part(b, e, 0, w.cols, [&](int64_t from, int64_t to) { out[to] = x[from]; });
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

namespace {

int64_t start_of(const KernelCall& k, const Array& start, int64_t size, int64_t length) {
  const int64_t at = start.is_scalar ? start.scalar.to_int() : index_at(start.data, start.dtype, 0);
  if (at >= 0 && at <= size - length) return at;
  report_error(k, 1, at);
  return std::clamp<int64_t>(at, 0, size - length);
}

}  // namespace

void run_dynamic_update(const KernelCall& k) {
  const Array &v = k.in[2], &y = k.out[0];
  copy_first(k);
  const int d = normalize_dim(k.get_attrs<ShapeAttrs>().shape[0].value(), y.rank);
  const int64_t at = start_of(k, k.in[1], y.shape[d], v.shape[d]);
  // y may be x itself, a cell's value: it must be unchanged after an error.
  if (v.numel && !(k.error && k.error->code.load()))
    strided_copy(at_offset(y, at * y.strides[d]), y.strides, v.data, v.strides, v.shape, v.rank,
                 size_of(y.dtype));
}

void run_dynamic_slice(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int d = normalize_dim(k.get_attrs<DynamicSliceAttrs>().dim, x.rank);
  const int64_t at = start_of(k, k.in[1], x.shape[d], y.shape[d]);
  if (y.numel)
    strided_copy(y.data, y.strides, at_offset(x, at * x.strides[d]), x.strides, y.shape, y.rank,
                 size_of(y.dtype));
}

}  // namespace tandem::detail
