// SPDX-License-Identifier: Apache-2.0
// Merging of dimensions, cursors, and the strided copies that bring odd layouts into tiles.
#include "tandem/codegen/tile_loop.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/copy_bytes.h"
#include "tandem/tensor/allocator.h"

namespace tandem::codegen {

bool TileLoop::dense(int array) const {
  int64_t expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (size[d] != 1 && stride[array][d] != expected) return false;
    expected *= size[d];
  }
  return true;
}

bool TileLoop::constant(int array) const {
  for (int d = 0; d < rank; ++d) {
    if (size[d] != 1 && stride[array][d] != 0) return false;
  }
  return true;
}

TileLoop TileLoop::make(const int64_t* shape, int rank, const Array* const* arrays, int n,
                        int leader) {
  TileLoop loop;
  loop.rank = rank;
  loop.n_arrays = n;
  std::copy(shape, shape + rank, loop.size);
  for (int i = 0; i < n; ++i) {
    const Array& a = *arrays[i];
    const int lead = rank - a.rank;
    for (int d = 0; d < rank; ++d) {
      const bool broadcast = a.is_scalar || d < lead || (a.shape[d - lead] == 1 && shape[d] != 1);
      loop.stride[i][d] = broadcast ? 0 : a.strides[d - lead];
    }
  }
  loop.normalise(leader);
  return loop;
}

void TileLoop::normalise(int leader) {
  // Insertion sort, outermost first; equal strides keep their order.
  const auto swap_dims = [&](int a, int b) {
    std::swap(size[a], size[b]);
    for (int i = 0; i < n_arrays; ++i) std::swap(stride[i][a], stride[i][b]);
  };
  int kept = 0;
  for (int d = 0; d < rank; ++d) {
    if (size[d] == 1) continue;
    if (kept != d) swap_dims(kept, d);
    ++kept;
  }
  for (int d = 1; leader >= 0 && d < kept; ++d) {
    for (int e = d; e > 0 && stride[leader][e - 1] < stride[leader][e]; --e) swap_dims(e - 1, e);
  }
  int last = -1;
  for (int d = 0; d < kept; ++d) {
    bool merge = last >= 0;
    for (int i = 0; merge && i < n_arrays; ++i) {
      merge = stride[i][last] == stride[i][d] * size[d];
    }
    if (merge) {
      size[last] *= size[d];
      for (int i = 0; i < n_arrays; ++i) stride[i][last] = stride[i][d];
      continue;
    }
    ++last;
    if (last != d) swap_dims(last, d);
  }
  rank = last + 1;
  if (rank == 0) {
    rank = 1;
    size[0] = 1;
    for (int i = 0; i < n_arrays; ++i) stride[i][0] = 0;
  }
}

int64_t TileLoop::offset_of(int array, int64_t flat) const {
  int64_t offset = 0;
  for (int d = rank - 1; d > 0; --d) {
    offset += flat % size[d] * stride[array][d];
    flat /= size[d];
  }
  return offset + flat * stride[array][0];
}

LoopCursor::LoopCursor(const TileLoop& l, int64_t row) : loop(l) {
  for (int d = loop.rank - 2; d >= 0; --d) {
    index[d] = row % loop.size[d];
    row /= loop.size[d];
    for (int i = 0; i < loop.n_arrays; ++i) offset[i] += index[d] * loop.stride[i][d];
  }
}

void LoopCursor::advance() {
  for (int d = loop.rank - 2; d >= 0; --d) {
    for (int i = 0; i < loop.n_arrays; ++i) offset[i] += loop.stride[i][d];
    if (++index[d] < loop.size[d]) return;
    for (int i = 0; i < loop.n_arrays; ++i) offset[i] -= loop.size[d] * loop.stride[i][d];
    index[d] = 0;
  }
}

namespace {

template <class T>
void gather_as(void* dst, const void* src, int64_t stride, int64_t n) {
  T* out = static_cast<T*>(dst);
  const T* x = static_cast<const T*>(src);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride];
}
template <class T>
void scatter_as(void* dst, const void* src, int64_t stride, int64_t n) {
  T* out = static_cast<T*>(dst);
  const T* x = static_cast<const T*>(src);
  for (int64_t i = 0; i < n; ++i) out[i * stride] = x[i];
}

// Calls run(offset of the array, index in the tile, length) for each piece of one inner row.
template <class Run>
void for_runs(const TileLoop& loop, int array, int64_t begin, int64_t n, Run run) {
  const int64_t inner = loop.inner();
  const int64_t* stride = loop.stride[array];
  int64_t index[kMaxRank];
  int64_t at = begin % inner, row = begin / inner, offset = 0;
  for (int d = loop.rank - 2; d >= 0; --d) {
    index[d] = row % loop.size[d];
    row /= loop.size[d];
    offset += index[d] * stride[d];
  }
  const int outer = loop.rank - 2;  // the dimension around the innermost one; -1: there is none
  const int64_t last = stride[loop.rank - 1];
  // To the start of the row that follows `rows` rows of dimension `outer`.
  const auto advance = [&](int64_t rows) {
    if (outer < 0) return;
    index[outer] += rows;
    offset += rows * stride[outer];
    for (int d = outer; d >= 0 && index[d] == loop.size[d]; --d) {
      offset -= loop.size[d] * stride[d];
      index[d] = 0;
      if (d == 0) break;
      offset += stride[d - 1];
      ++index[d - 1];
    }
  };
  for (int64_t done = 0; done < n;) {
    const int64_t whole =
        outer < 0 || at != 0 ? 0 : std::min((n - done) / inner, loop.size[outer] - index[outer]);
    for (int64_t k = 0; k < whole; ++k, done += inner) run(offset + k * stride[outer], done, inner);
    if (whole > 0) {
      advance(whole);
      continue;
    }
    const int64_t length = std::min(inner - at, n - done);
    run(offset + at * last, done, length);
    done += length;
    at = 0;
    if (done < n) advance(1);
  }
}

// Runs of a few elements are copied without a call for each, the last piece over the one before.
constexpr size_t kShortRun = 256;  // bytes

template <size_t piece>
inline void copy_pieces(char* to, const char* from, size_t bytes) {
  for (size_t at = 0; at + piece < bytes; at += piece) __builtin_memcpy(to + at, from + at, piece);
  __builtin_memcpy(to + bytes - piece, from + bytes - piece, piece);
}
template <class T>
inline void copy_run(T* to, const T* from, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(T);
  char* const out = reinterpret_cast<char*>(to);
  const char* const x = reinterpret_cast<const char*>(from);
  if (bytes > kShortRun)
    copy_bytes(out, x, bytes);
  else if (bytes >= 16)
    copy_pieces<16>(out, x, bytes);
  else if (bytes >= 4)
    copy_pieces<4>(out, x, bytes);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
template <class T>
inline void fill_run(T* __restrict to, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = value;
}

template <class T>
void gather_flat_as(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                    int64_t n) {
  T* out = static_cast<T*>(dst);
  const T* x = static_cast<const T*>(src);
  const int64_t stride = loop.inner_stride(array);
  for_runs(loop, array, begin, n, [&](int64_t offset, int64_t at, int64_t length) {
    const T* from = x + offset;
    T* to = out + at;
    if (stride == 1) {
      copy_run(to, from, length);
    } else if (stride == 0) {
      fill_run(to, *from, length);
    } else {
      for (int64_t i = 0; i < length; ++i) to[i] = from[i * stride];
    }
  });
}
template <class T>
void scatter_flat_as(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                     int64_t n) {
  T* out = static_cast<T*>(dst);
  const T* x = static_cast<const T*>(src);
  const int64_t stride = loop.inner_stride(array);
  for_runs(loop, array, begin, n, [&](int64_t offset, int64_t at, int64_t length) {
    if (stride == 1) return copy_run(out + offset, x + at, length);
    for (int64_t i = 0; i < length; ++i) out[offset + i * stride] = x[at + i];
  });
}

}  // namespace

#define TD_BY_SIZE(fn, ...)             \
  switch (element_size) {               \
    case 1:                             \
      return fn<uint8_t>(__VA_ARGS__);  \
    case 2:                             \
      return fn<uint16_t>(__VA_ARGS__); \
    case 4:                             \
      return fn<uint32_t>(__VA_ARGS__); \
    default:                            \
      return fn<uint64_t>(__VA_ARGS__); \
  }

void gather_run(void* dst, const void* src, int64_t stride, int64_t n, size_t element_size) {
  if (stride == 1) {
    copy_bytes(dst, src, static_cast<size_t>(n) * element_size);
    return;
  }
  TD_BY_SIZE(gather_as, dst, src, stride, n)
}

void scatter_run(void* dst, const void* src, int64_t stride, int64_t n, size_t element_size) {
  TD_BY_SIZE(scatter_as, dst, src, stride, n)
}

void gather_flat(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                 int64_t n, size_t element_size) {
  TD_BY_SIZE(gather_flat_as, loop, array, dst, src, begin, n)
}

void scatter_flat(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                  int64_t n,
                  size_t element_size){TD_BY_SIZE(scatter_flat_as, loop, array, dst, src, begin, n)}
#undef TD_BY_SIZE

int64_t TileScratch::tile_elements(int64_t bytes_per_element) {
  if (bytes_per_element == 0) return kTileMax;
  return std::clamp<int64_t>(kStackBytes / bytes_per_element / 64 * 64, 64, kTileMax);
}

TileScratch::TileScratch(int64_t bytes) : next_(stack_) {
  if (bytes <= static_cast<int64_t>(sizeof stack_)) return;
  heap_bytes_ = bytes;
  next_ = heap_ = static_cast<char*>(detail::allocate(static_cast<size_t>(bytes)));
}

TileScratch::~TileScratch() {
  if (heap_) detail::deallocate(heap_, static_cast<size_t>(heap_bytes_));
}

}  // namespace tandem::codegen
