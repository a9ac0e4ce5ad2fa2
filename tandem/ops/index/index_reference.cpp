// SPDX-License-Identifier: Apache-2.0
// Loops that read and write by index. An index out of range is reported and clamped: nothing
// outside is touched. Indices that name the same place are processed in order, whatever the number
// of threads.
#include "tandem/ops/index/index_reference_internal.h"
#include "tandem/ops/index/indexed_internal.h"
#include "tandem/ops/index/positions_internal.h"

#include <algorithm>
#include <bit>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kAhead = 8;  // rows between a prefetch and its use

// One call of index, index_put or index_backward. x has the indexed dims, v the dims of the index
// tensors in their place: both are outer x (indexed | index dims) x inner. The index tensors are
// read a block at a time, by the thread that uses it.
struct Places {
  Array x, v;
  Positions outer, inner;  ///< in x and v
  Positions at;            ///< in v and the index tensors
  int64_t rows = 1;        ///< size of the first indexed dim
  int tensors = 0;
  struct Indexed {
    const void* data;
    DType dtype;
    int64_t size, step;  ///< of the indexed dim of x
  } indexed[kMaxRank];
  bool wrap = false;
  int64_t skip = -1;

  /// x is a vector: f(offset in x, offset in v) needs no blocks.
  bool vector() const {
    return tensors == 1 && skip < 0 && outer.count() == 1 && inner.count() == 1;
  }
  template <class F>
  void each_of_vector(const KernelCall& k, int64_t begin, int64_t end, F f) const {
    const IndexRun r{indexed[0].size, indexed[0].step, at.step(1), 0, at.step(0), wrap};
    at.runs(begin, end - begin, [&](int64_t, int64_t n, const int64_t* offset) {
      each_indexed(k, r, indexed[0].data, indexed[0].dtype, offset[1], n, 0, offset[0], f);
    });
  }
};

// Where neighbouring index positions are in x and v, and their positions in the first indexed dim.
struct PlaceBlock {
  static constexpr int64_t kSize = 512;
  int64_t n = 0;
  int64_t x[kSize], v[kSize], row[kSize];
};

// False when there is nothing to index (a dim of size 0 is reported if it was indexed).
bool find_places(const KernelCall& k, const IndexAttrs& a, int first, Places& p) {
  const Array &x = p.x, &v = p.v;
  const int n = p.tensors = k.n_in - first, d = normalize_dim(a.dim, x.rank);
  const int irank = v.rank - (x.rank - n);
  p.wrap = a.wrap;
  p.skip = a.skip;
  p.outer = Positions(x.shape, d, {x.strides, v.strides});
  p.inner = Positions(x.shape + d + n, x.rank - d - n, {x.strides + d + n, v.strides + d + irank});
  p.rows = x.shape[d];
  int64_t broadcast[kMaxRank][kMaxRank] = {};
  const int64_t* strides[Positions::kMaxSets] = {v.strides + d};
  for (int i = 0; i < n; ++i) {
    const Array& index = k.in[first + i];
    for (int r = 0; r < index.rank; ++r)
      if (index.shape[r] != 1) broadcast[i][irank - index.rank + r] = index.strides[r];
    strides[i + 1] = broadcast[i];
    p.indexed[i] = {index.data, index.dtype, x.shape[d + i], x.strides[d + i]};
  }
  p.at = Positions(v.shape + d, irank, strides, n + 1);
  if (p.outer.count() == 0 || p.at.count() == 0 || p.inner.count() == 0) return false;
  for (int i = 0; i < n; ++i)
    if (p.indexed[i].size == 0) {
      report_error(k, 1, index_at(p.indexed[i].data, p.indexed[i].dtype, 0));
      return false;
    }
  return true;
}

// What index tensor i says about m positions: their places x, or what it adds to them, and for the
// first tensor their rows.
template <class I>
void add_places(const KernelCall& k, const Places& p, int i, const I* index, int64_t step,
                int64_t m, int64_t* x, int64_t* row) {
  const int64_t size = p.indexed[i].size, x_step = p.indexed[i].step;
  const int64_t skip = i == p.tensors - 1 ? p.skip : -1;
  const auto at = [&](int64_t j, int64_t unit) {
    const int64_t c = index[j * unit];
    if (TD_LIKELY(static_cast<uint64_t>(c) < static_cast<uint64_t>(size))) return c;
    return skip >= 0 && c == skip ? 0 : checked_place(k, c, size, p.wrap);
  };
  if (i > 0)
    for (int64_t j = 0; j < m; ++j) x[j] += at(j, step) * x_step;
  else if (step == 1)
    for (int64_t j = 0; j < m; ++j) x[j] = (row[j] = at(j, 1)) * x_step;
  else
    for (int64_t j = 0; j < m; ++j) x[j] = (row[j] = at(j, step)) * x_step;
  if (skip >= 0)
    for (int64_t j = 0; j < m; ++j)
      if (index[j * step] == skip) x[j] = -1;
}

// The index positions first, first + 1, ...; x is -1 where nothing is written.
void read_block(const KernelCall& k, const Places& p, int64_t first, int64_t n, PlaceBlock& b) {
  b.n = n;
  p.at.runs(first, n, [&](int64_t position, int64_t m, const int64_t* offset) {
    const int64_t e = position - first, v_step = p.at.step(0);
    for (int64_t j = 0; j < m; ++j) b.v[e + j] = offset[0] + j * v_step;
    for (int i = 0; i < p.tensors; ++i) {
      const int64_t from = offset[i + 1], step = p.at.step(i + 1);
      if (p.indexed[i].dtype == DType::i64)
        add_places(k, p, i, static_cast<const int64_t*>(p.indexed[i].data) + from, step, m, b.x + e,
                   b.row + e);
      else
        add_places(k, p, i, static_cast<const int32_t*>(p.indexed[i].data) + from, step, m, b.x + e,
                   b.row + e);
    }
  });
}

// Keeps the places in rows [begin, end) that are not skipped.
void keep_rows(PlaceBlock& b, int64_t begin, int64_t end) {
  int64_t m = 0;
  for (int64_t i = 0; i < b.n; ++i) {
    const bool keep = b.x[i] >= 0 && b.row[i] >= begin && b.row[i] < end;
    b.x[m] = b.x[i];
    b.v[m] = b.v[i];
    m += keep;
  }
  b.n = m;
}

// f(offset in x, offset in v) for outer positions [begin, end).
template <class F>
void each_outer(const Places& p, int64_t begin, int64_t end, F&& f) {
  const int64_t x_step = p.outer.step(0), v_step = p.outer.step(1);
  p.outer.runs(begin, end - begin, [&](int64_t, int64_t m, const int64_t* offset) {
    for (int64_t j = 0; j < m; ++j) f(offset[0] + j * x_step, offset[1] + j * v_step);
  });
}

// f(offset in x, offset in v, length) for the runs of an element's inner dims.
template <class F>
void each_inner_run(const Places& p, F&& f) {
  p.inner.runs(0, p.inner.count(),
               [&](int64_t, int64_t m, const int64_t* offset) { f(offset[0], offset[1], m); });
}

// Copies an element's inner dims; a call of memcpy costs more than most rows of embeddings.
inline void copy_short(void* to, const void* from, size_t bytes) {
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  if (bytes > 512) {
    copy_bytes(t, f, bytes);
    return;
  }
  size_t i = 0;
  for (; i + 16 <= bytes; i += 16) std::memcpy(t + i, f + i, 16);
  for (; i < bytes; ++i) t[i] = f[i];
}

// Begins to load a row that is used soon.
inline void fetch(const void* row, size_t bytes) {
  for (size_t i = 0; i < std::min<size_t>(bytes, 256); i += 64)
    __builtin_prefetch(static_cast<const char*>(row) + i);
}

// v[e] = x[at e] for the places of a block.
template <class T>
void read_places_of(const Places& p, const PlaceBlock& b, const T* x, T* v) {
  const int64_t inner = p.inner.count(), n = b.n;
  if (inner == 1 && b.v[n - 1] - b.v[0] == n - 1) {
    T* to = v + b.v[0];
    for (int64_t i = 0; i < n; ++i) to[i] = x[b.x[i]];
  } else if (inner == 1) {
    for (int64_t i = 0; i < n; ++i) v[b.v[i]] = x[b.x[i]];
  } else if (p.inner.dense(0) && p.inner.dense(1)) {
    const size_t bytes = static_cast<size_t>(inner) * sizeof(T);
    for (int64_t i = 0; i < n; ++i) {
      fetch(x + b.x[std::min(i + kAhead, n - 1)], bytes);
      copy_short(v + b.v[i], x + b.x[i], bytes);
    }
  } else {
    const int64_t xs = p.inner.step(0), vs = p.inner.step(1);
    for (int64_t i = 0; i < b.n; ++i)
      each_inner_run(p, [&](int64_t xo, int64_t vo, int64_t m) {
        const T* from = x + b.x[i] + xo;
        T* to = v + b.v[i] + vo;
        for (int64_t j = 0; j < m; ++j) to[j * vs] = from[j * xs];
      });
  }
}

template <class T>
void read_places(const KernelCall& k, const Places& p) {
  if (p.vector()) {
    parallel_for(0, p.at.count(), kIndexGrain, [&](int64_t begin, int64_t end) {
      p.each_of_vector(k, begin, end, [x = p.x.as<T>(), v = p.v.as<T>()](int64_t from, int64_t to) {
        v[to] = x[from];
      });
    });
    return;
  }
  const int64_t outer = p.outer.count(), count = p.at.count();
  const int64_t blocks = (count + PlaceBlock::kSize - 1) / PlaceBlock::kSize;
  const int64_t width = (count + blocks - 1) / blocks;  // of a block: all are alike
  const int64_t grain = std::max<int64_t>(1, kIndexGrain / (width * p.inner.count()));
  parallel_for(0, blocks * outer, grain, [&](int64_t begin, int64_t end) {
    PlaceBlock b;
    while (begin < end) {
      const int64_t first = begin / outer * width, o = begin % outer;
      const int64_t n = std::min(end - begin, outer - o);
      if (first < count) {
        read_block(k, p, first, std::min(width, count - first), b);
        each_outer(p, o, o + n, [&](int64_t xo, int64_t vo) {
          read_places_of(p, b, p.x.as<T>() + xo, p.v.as<T>() + vo);
        });
      }
      begin += n;
    }
  });
}

template <class T, bool kAdd>
inline void put(T& y, T value) {
  y = kAdd ? add_as<T>(y, value) : value;
}
constexpr int64_t kShorts = 8;

// to[j] += from[j] for j < kShorts, each sum rounded to even as BFloat16(float) rounds.
#ifdef __SSE2__
inline __m128i rounded_sums(__m128i a, __m128i b) {  // bits of four floats each
  const __m128 sum = _mm_add_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b));
  const __m128i u = _mm_castps_si128(sum), nan = _mm_castps_si128(_mm_cmpunord_ps(sum, sum));
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(u, _mm_add_epi32(odd, _mm_set1_epi32(0x7FFF)));
  const __m128i quiet = _mm_or_si128(u, _mm_set1_epi32(0x400000));
  return _mm_srai_epi32(_mm_or_si128(_mm_and_si128(nan, quiet), _mm_andnot_si128(nan, rounded)),
                        16);
}
inline void add_shorts(BFloat16* to, const BFloat16* from) {
  const __m128i zero = _mm_setzero_si128();
  __m128i a, b;
  std::memcpy(&a, to, sizeof a);
  std::memcpy(&b, from, sizeof b);
  a = _mm_packs_epi32(rounded_sums(_mm_unpacklo_epi16(zero, a), _mm_unpacklo_epi16(zero, b)),
                      rounded_sums(_mm_unpackhi_epi16(zero, a), _mm_unpackhi_epi16(zero, b)));
  std::memcpy(static_cast<void*>(to), &a, sizeof a);
}
#else
inline void add_shorts(BFloat16* to, const BFloat16* from) {
  uint16_t a[kShorts], b[kShorts];
  std::memcpy(a, to, sizeof a);
  std::memcpy(b, from, sizeof b);
  for (int64_t j = 0; j < kShorts; ++j) {
    const float x = std::bit_cast<float>(uint32_t{a[j]} << 16);
    const float y = std::bit_cast<float>(uint32_t{b[j]} << 16);
    a[j] = BFloat16(x + y).bits;
  }
  std::memcpy(static_cast<void*>(to), a, sizeof a);
}
#endif

template <class T, bool kAdd>
void put_row(T* to, const T* from, int64_t n) {
  int64_t j = 0;
  if constexpr (!kAdd) {
    return copy_short(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    for (; j + kShorts <= n; j += kShorts) add_shorts(to + j, from + j);
  } else if constexpr (std::is_floating_point_v<T>) {
    typedef T Block __attribute__((vector_size(16)));
    constexpr int64_t kBlock = 16 / static_cast<int64_t>(sizeof(T));
    for (; j + kBlock <= n; j += kBlock) {
      Block a, b;
      std::memcpy(&a, to + j, sizeof a);
      std::memcpy(&b, from + j, sizeof b);
      a += b;
      std::memcpy(static_cast<void*>(to + j), &a, sizeof a);
    }
  }
  for (; j < n; ++j) put<T, kAdd>(to[j], from[j]);
}

// x[at e] = or += v[e] for the places of a block, in order.
template <class T, bool kAdd>
void write_places_of(const Places& p, const PlaceBlock& b, T* x, const T* v) {
  const int64_t inner = p.inner.count();
  if (inner == 1) {
    for (int64_t i = 0; i < b.n; ++i) put<T, kAdd>(x[b.x[i]], v[b.v[i]]);
  } else if (p.inner.dense(0) && p.inner.dense(1)) {
    const size_t bytes = static_cast<size_t>(inner) * sizeof(T);
    for (int64_t i = 0; i < b.n; ++i) {
      const int64_t soon = std::min(i + kAhead, b.n - 1);
      fetch(v + b.v[soon], bytes);
      fetch(x + b.x[soon], bytes);
      put_row<T, kAdd>(x + b.x[i], v + b.v[i], inner);
    }
  } else {
    const int64_t xs = p.inner.step(0), vs = p.inner.step(1);
    for (int64_t i = 0; i < b.n; ++i)
      each_inner_run(p, [&](int64_t xo, int64_t vo, int64_t m) {
        T* to = x + b.x[i] + xo;
        const T* from = v + b.v[i] + vo;
        for (int64_t j = 0; j < m; ++j) put<T, kAdd>(to[j * xs], from[j * vs]);
      });
  }
}

// x[at e] = or += v[e]. Threads own ranges of x's rows; each walks the indices in order.
template <class T, bool kAdd>
void write_places(const KernelCall& k, const Places& p) {
  if (p.vector())
    return p.each_of_vector(k, 0, p.at.count(),
                            [x = p.x.as<T>(), v = p.v.as<T>()](int64_t to, int64_t from) {
                              put<T, kAdd>(x[to], v[from]);
                            });
  const int64_t outer = p.outer.count(), count = p.at.count(), inner = p.inner.count();
  const auto part = [&](int64_t o0, int64_t o1, int64_t r0, int64_t r1) {
    PlaceBlock b;
    for (int64_t first = 0; first < count; first += PlaceBlock::kSize) {
      read_block(k, p, first, std::min(PlaceBlock::kSize, count - first), b);
      if (p.skip >= 0 || r1 - r0 < p.rows) keep_rows(b, r0, r1);
      each_outer(p, o0, o1, [&](int64_t xo, int64_t vo) {
        write_places_of<T, kAdd>(p, b, p.x.as<T>() + xo, p.v.as<T>() + vo);
      });
    }
  };
  const int64_t per_outer = count * inner;
  if (outer >= 8)
    parallel_for(0, outer, std::max<int64_t>(1, kIndexGrain / per_outer),
                 [&](int64_t b, int64_t e) { part(b, e, 0, p.rows); });
  else if (inner >= 8 && outer * per_outer >= 2 * kIndexGrain)
    parallel_for(0, p.rows, std::max<int64_t>(1, p.rows / 64),
                 [&](int64_t b, int64_t e) { part(0, outer, b, e); });
  else
    part(0, outer, 0, p.rows);
}

void write_all(const KernelCall& k, const Places& p, bool accumulate) {
  if (!accumulate)
    with_size(p.x.dtype, [&](auto tag) { write_places<decltype(tag), false>(k, p); });
  else
    visit_dtype(p.x.dtype, [&](auto tag) { write_places<decltype(tag), true>(k, p); });
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
    with_size(p.x.dtype, [&](auto tag) { read_places<decltype(tag)>(k, p); });
  else
    zero_array(k.out[0]);
}

void run_index_put(const KernelCall& k) {
  const IndexAttrs& a = k.get_attrs<IndexAttrs>();
  copy_first(k);
  Places p;
  p.x = k.out[0];
  p.v = k.in[1];
  if (find_places(k, a, 2, p)) write_all(k, p, a.accumulate);
}

void run_index_backward(const KernelCall& k) {
  Places p;
  p.x = k.out[0];
  p.v = k.in[0];
  zero_array(k.out[0]);
  if (find_places(k, k.get_attrs<IndexAttrs>(), 1, p)) write_all(k, p, true);
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
  const Positions places(v.shape, v.rank, {s.data(), v.strides});
  const int64_t to_step = places.step(0), from_step = places.step(1);
  visit_dtype(y.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel_for(0, v.numel, kIndexGrain, [&](int64_t b, int64_t e) {
      places.runs(b, e - b, [&](int64_t, int64_t n, const int64_t* at) {
        T* to = y.as<T>() + offset + at[0];
        const T* from = v.as<T>() + at[1];
        for (int64_t j = 0; j < n; ++j)
          to[j * to_step] = add_as<T>(to[j * to_step], from[j * from_step]);
      });
    });
  });
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
