// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/base/per_thread.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/tensor/pixels_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kGrainBytes = 64 * 1024;
constexpr int64_t kTile = 32;

struct CopyDim {
  int64_t n, ds, ss;
};
struct Layout {
  CopyDim d[kMaxRank];
  int rank = 0;
};

// Drops sizes of 1, sorts by destination stride and merges adjacent dims.
Layout simplify(const int64_t* shape, const int64_t* ds, const int64_t* ss, int rank) {
  Layout l;
  for (int i = 0; i < rank; ++i)
    if (shape[i] != 1) l.d[l.rank++] = {shape[i], ds[i], ss[i]};
  std::stable_sort(l.d, l.d + l.rank, [](const CopyDim& a, const CopyDim& b) {
    return std::abs(a.ds) > std::abs(b.ds);
  });
  int w = 0;
  for (int i = 1; i < l.rank; ++i) {
    CopyDim& a = l.d[w];
    const CopyDim& b = l.d[i];
    if (a.ds == b.ds * b.n && a.ss == b.ss * b.n)
      a = {a.n * b.n, b.ds, b.ss};
    else
      l.d[++w] = b;
  }
  if (l.rank) l.rank = w + 1;
  return l;
}

// Offsets of one position in the outer dims after the other, from `k` on: rows may be so short that
// divisions would cost more than they do.
struct Walk {
  int64_t dst = 0, src = 0;

  Walk(const CopyDim* d, int rank, int64_t k) : d_(d), rank_(rank) {
    for (int i = rank - 1; i >= 0; --i) {
      at_[i] = k % d[i].n;
      k /= d[i].n;
      dst += at_[i] * d[i].ds;
      src += at_[i] * d[i].ss;
    }
  }
  void step() {
    for (int i = rank_ - 1; i >= 0; --i) {
      dst += d_[i].ds;
      src += d_[i].ss;
      if (++at_[i] < d_[i].n) return;
      at_[i] = 0;
      dst -= d_[i].n * d_[i].ds;
      src -= d_[i].n * d_[i].ss;
    }
  }

 private:
  const CopyDim* d_;
  int rank_;
  int64_t at_[kMaxRank];
};

// dst[i] = src[-i]: 16 bytes at a time, turned in a register.
template <class T>
void copy_reversed(T* dst, const T* src, int64_t n) {
  typedef T Block __attribute__((vector_size(16)));
  constexpr int64_t kBlock = 16 / static_cast<int64_t>(sizeof(T));
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    Block b;
    std::memcpy(&b, src - i - (kBlock - 1), sizeof b);
    if constexpr (kBlock == 2)
      b = __builtin_shufflevector(b, b, 1, 0);
    else if constexpr (kBlock == 4)
      b = __builtin_shufflevector(b, b, 3, 2, 1, 0);
    else if constexpr (kBlock == 8)
      b = __builtin_shufflevector(b, b, 7, 6, 5, 4, 3, 2, 1, 0);
    else
      b = __builtin_shufflevector(b, b, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    std::memcpy(static_cast<void*>(dst + i), &b, sizeof b);
  }
  for (; i < n; ++i) dst[i] = src[-i];
}

template <class T>
void copy_row(T* dst, int64_t ds, const T* src, int64_t ss, int64_t n) {
  if (ds == 1 && ss == 1) {
    copy_bytes(dst, src, static_cast<size_t>(n) * sizeof(T));
  } else if (ds == 1 && ss == 0) {
    std::fill_n(dst, n, *src);
  } else if (ds == 1 && ss == -1) {
    copy_reversed(dst, src, n);
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * ds] = src[i * ss];
  }
}

constexpr int64_t kShortRow = 16;

// m rows of a few elements each.
template <class T>
void copy_short_rows(T* dst, const T* src, const CopyDim& row, const CopyDim& inner, int64_t m) {
  const auto repeated = [&](auto count) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < count; ++j) dst[i * row.ds + j] = src[i * row.ss];
  };
  if (inner.ds == 1 && inner.ss == 0 && inner.n == 2)
    return repeated(std::integral_constant<int64_t, 2>());
  if (inner.ds == 1 && inner.ss == 0 && inner.n == 3)
    return repeated(std::integral_constant<int64_t, 3>());
  if (inner.ds == 1 && inner.ss == 0 && inner.n == 4)
    return repeated(std::integral_constant<int64_t, 4>());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < inner.n; ++j)
      dst[i * row.ds + j * inner.ds] = src[i * row.ss + j * inner.ss];
}

// A square of kSide x kSide elements: whole cache lines in, whole cache lines out.
template <class T>
struct Square {
  static constexpr int64_t kSide = 64 / static_cast<int64_t>(sizeof(T)) > 16
                                       ? 16
                                       : 64 / static_cast<int64_t>(sizeof(T));
  alignas(64) T t[kSide * kSide];

  void read(const T* src, int64_t step) {
    for (int64_t k = 0; k < kSide; ++k)
      std::memcpy(static_cast<void*>(t + k * kSide), src + k * step, kSide * sizeof(T));
  }
  void write(T* dst, int64_t step) const {
    for (int64_t i = 0; i < kSide; ++i)
      for (int64_t k = 0; k < kSide; ++k) dst[i * step + k] = t[k * kSide + i];
  }
};

// One transposed plane: `a` is the source's dense dim, `b` the destination's.
template <class T>
void copy_plane(T* dst, const T* src, const CopyDim& a, const CopyDim& b, int64_t a0, int64_t a1) {
  constexpr int64_t kSide = Square<T>::kSide;
  Square<T> square;
  for (int64_t i = a0; i < a1; i += kSide)
    for (int64_t k = 0; k < b.n; k += kSide) {
      T* to = dst + i * a.ds + k * b.ds;
      const T* from = src + i + k * b.ss;
      const int64_t ni = std::min(kSide, a1 - i), nk = std::min(kSide, b.n - k);
      if (ni == kSide && nk == kSide && b.ds == 1) {
        square.read(from, b.ss);
        square.write(to, a.ds);
      } else {
        for (int64_t p = 0; p < ni; ++p)
          for (int64_t q = 0; q < nk; ++q) to[p * a.ds + q * b.ds] = from[p + q * b.ss];
      }
    }
}

template <class T>
void copy_layout(T* dst, const T* src, Layout l) {
  if (l.rank == 0) {
    *dst = *src;
    return;
  }
  const CopyDim inner = l.d[l.rank - 1];
  constexpr int64_t kGrain = kGrainBytes / static_cast<int64_t>(sizeof(T));
  if (l.rank == 1) {
    parallel_for(0, inner.n, kGrain, [&](int64_t b, int64_t e) {
      copy_row(dst + b * inner.ds, inner.ds, src + b * inner.ss, inner.ss, e - b);
    });
    return;
  }
  int flat = -1;  // the source's dense dim, when it is not the innermost
  if (inner.ss != 1 && inner.ss != 0)
    for (int i = 0; i < l.rank - 1; ++i)
      if (l.d[i].ss == 1) flat = i;
  if (flat < 0) {
    int64_t rows = 1;
    for (int i = 0; i < l.rank - 1; ++i) rows *= l.d[i].n;
    const CopyDim row = l.d[l.rank - 2];
    const bool few = inner.n <= kShortRow && row.n > 1;
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / inner.n), [&](int64_t b, int64_t e) {
      if (few) {  // a line of rows at a time
        for (Walk at(l.d, l.rank - 2, b / row.n); b < e; at.step()) {
          const int64_t i = b % row.n, m = std::min(row.n - i, e - b);
          copy_short_rows(dst + at.dst + i * row.ds, src + at.src + i * row.ss, row, inner, m);
          b += m;
        }
        return;
      }
      Walk at(l.d, l.rank - 1, b);
      for (int64_t k = b; k < e; ++k, at.step())
        copy_row(dst + at.dst, inner.ds, src + at.src, inner.ss, inner.n);
    });
    return;
  }
  const CopyDim a = l.d[flat];
  for (int i = flat; i + 1 < l.rank - 1; ++i) l.d[i] = l.d[i + 1];
  const int outer_rank = l.rank - 2;
  int64_t planes = 1;
  for (int i = 0; i < outer_rank; ++i) planes *= l.d[i].n;
  if constexpr (sizeof(T) == 1)
    if (inner.ss == a.n && inner.ds == 1 && a.n <= 4) {          // pixels to planes
      const int64_t grain = std::max<int64_t>(1, kGrain / a.n);  // pixels
      const int64_t pieces = (inner.n + grain - 1) / grain;
      parallel_for(0, planes * pieces, 1, [&](int64_t b, int64_t e) {
        for (int64_t k = b; k < e; ++k) {
          const Walk at(l.d, outer_rank, k / pieces);
          const int64_t first = k % pieces * grain;
          to_planes(src + at.src + first * a.n, dst + at.dst + first,
                    std::min(grain, inner.n - first), a.n, a.ds);
        }
      });
      return;
    }
  const int64_t strips = (a.n + kTile - 1) / kTile;
  parallel_for(0, planes * strips, std::max<int64_t>(1, kGrain / (kTile * inner.n)),
               [&](int64_t b, int64_t e) {
                 for (int64_t k = b; k < e; ++k) {
                   const Walk at(l.d, outer_rank, k / strips);
                   const int64_t a0 = k % strips * kTile;
                   copy_plane(dst + at.dst, src + at.src, a, inner, a0, std::min(a0 + kTile, a.n));
                 }
               });
}

}  // namespace

namespace {
struct CurrentMover {
  Mover* mover = nullptr;
};
Mover*& current_mover() { return PerThread<CurrentMover>::get().mover; }
}  // namespace

MoverGuard::MoverGuard(Mover& mover) : old_(std::exchange(current_mover(), &mover)) {}
MoverGuard::~MoverGuard() { current_mover() = old_; }

void strided_copy(void* dst, const int64_t* dst_strides, const void* src,
                  const int64_t* src_strides, const int64_t* shape, int rank, size_t size) {
  for (int i = 0; i < rank; ++i)
    if (shape[i] == 0) return;
  if (Mover* mover = current_mover())
    return mover->copy(dst, dst_strides, src, src_strides, shape, rank, size);
  const Layout l = simplify(shape, dst_strides, src_strides, rank);
  switch (size) {
    case 1:
      return copy_layout(static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), l);
    case 2:
      return copy_layout(static_cast<uint16_t*>(dst), static_cast<const uint16_t*>(src), l);
    case 4:
      return copy_layout(static_cast<uint32_t*>(dst), static_cast<const uint32_t*>(src), l);
    default:
      return copy_layout(static_cast<uint64_t*>(dst), static_cast<const uint64_t*>(src), l);
  }
}

void copy_array(const Array& dst, const Array& src) {
  strided_copy(dst.data, dst.strides, src.data, src.strides, dst.shape, dst.rank,
               size_of(dst.dtype));
}

void zero_array(const Array& a) {
  if (!a.contiguous || current_mover()) return fill_array(a, 0);
  char* p = a.as<char>();
  const int64_t size = static_cast<int64_t>(size_of(a.dtype));
  parallel_for(0, a.numel * size, 1 << 20,
               [&](int64_t b, int64_t e) { std::memset(p + b, 0, static_cast<size_t>(e - b)); });
}

void fill_array(const Array& a, Scalar value) {
  if (Mover* mover = current_mover()) {
    if (a.numel > 0) mover->fill(a, value);
    return;
  }
  visit_dtype(a.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T v = scalar_as<T>(value);
    if (!a.contiguous) {
      const int64_t zero[kMaxRank] = {};
      strided_copy(a.data, a.strides, &v, zero, a.shape, a.rank, sizeof(T));
      return;
    }
    T* p = a.as<T>();
    parallel_for(0, a.numel, 1 << 16, [&](int64_t b, int64_t e) { std::fill(p + b, p + e, v); });
  });
}

}  // namespace tandem::detail
