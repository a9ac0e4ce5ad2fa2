// SPDX-License-Identifier: Apache-2.0
// Own GEMM in f32 and f64. Invariant: an element of the result is a sum, in order, of chains of
// multiply-adds over blocks of k of one size, so its bits depend neither on the thread count, nor
// on its tile, nor on how many rows are computed with it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {
struct Epilogue;
}

namespace tandem::detail {

/// One tile: c[i, j] = bias[j] (or 0) + sum over segments s and k of a[i * am + k * ak + s *
/// a_segment] * b[j + k * b_row + s * b_segment] for i < rows, j < columns; with `accumulate` just
/// the sum is added to c. Then `add` (with c's row stride) is added and the result clamped to low
/// and high.
template <class T>
struct MicroCall {
  int64_t k = 0, segments = 1;
  const T* a = nullptr;
  int64_t am = 0, ak = 0, a_segment = 0;
  const T* b = nullptr;
  int64_t b_row = 0, b_segment = 0;
  T* c = nullptr;
  int64_t c_row = 0;
  const T* bias = nullptr;
  int columns = 0;
  bool accumulate = false, clamp = false;
  const T* add = nullptr;
  T low = 0, high = 0;
  const T* ahead = nullptr;  ///< prefetched into L2,
  int64_t ahead_lines = 1;   ///< as many cache lines per kAheadSteps of k;
  int64_t ahead_left = 0;    ///< after as many (0: all are in one piece),
  int64_t ahead_run = 0;     ///< and then always after as many,
  int64_t ahead_jump = 0;    ///< the next one lies as many elements further on
};
inline constexpr int64_t kAheadSteps = 4;
template <class T>
using MicroKernel = void (*)(const MicroCall<T>&);
/// One row of several panels at once, whose chains of multiply-adds hide each other's latency:
/// panel q reads b + q * b_panel and writes c + q * c_panel (bias and `add` like c). One segment.
template <class T>
using RowKernel = void (*)(const MicroCall<T>&, int64_t b_panel, int64_t c_panel);
/// k of one chain of multiply-adds.
inline constexpr int64_t kGemmDepth = 256;

/// c[j] = bias[j] (or 0) + sum over k of a[j * row + k] * x[k * step] for j < rows, k in order;
/// with `accumulate` just the sum is added to c.
template <class T>
struct DotCall {
  const T* a = nullptr;
  int64_t row = 0, rows = 0;
  const T* x = nullptr;
  int64_t step = 0, k = 0;
  T* c = nullptr;
  const T* bias = nullptr;
  bool accumulate = false;
};

inline constexpr int kMaxMicroRows = 14;

template <class T>
struct MicroTable {
  int rows;   ///< most rows of a tile
  int width;  ///< columns of one vector; a tile has at most two
  /// [rows - 1][vectors - 1][any columns; whole vectors with am == 1; whole vectors]
  MicroKernel<T> tile[kMaxMicroRows][2][3];
  /// to[k * to_row + j] = from[j * from_row + k] for j < n, k < depth. If n is less than `width` it
  /// writes whole vectors: `to` needs room for one more; what follows n belongs to the next row.
  void (*transpose)(T* to, int64_t to_row, const T* from, int64_t from_row, int64_t n,
                    int64_t depth);
  /// to[k * n + i] = from[k * step + i] for i < n <= rows, k < depth.
  void (*pack)(T* to, const T* from, int64_t step, int64_t n, int64_t depth);
  void (*dots)(const DotCall<T>&);  ///< nullptr where registers cannot be transposed
  RowKernel<T> row[2];              ///< of two and of four panels

  /// Columns of the widest tile.
  int64_t panel() const { return 2 * width; }
  int64_t panels(int64_t columns) const { return (columns + panel() - 1) / panel(); }
  /// Runs the tile with that many rows.
  void run(int64_t rows, const MicroCall<T>& c) const {
    const int kind = c.columns % width ? 0 : c.am == 1 ? 1 : 2;
    tile[rows - 1][c.columns > width][kind](c);
  }
  /// One row times `panels` whole panels (see RowKernel).
  void run_row(MicroCall<T> c, int64_t panels, int64_t b_panel, int64_t c_panel) const {
    for (c.columns = static_cast<int>(panel()); panels > 0;) {
      const int64_t n = panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
      if (n == 1)
        run(1, c);
      else
        row[n / 4](c, b_panel, c_panel);
      panels -= n;
      c.b += n * b_panel;
      c.c += n * c_panel;
      if (c.bias) c.bias += n * c_panel;
      if (c.add) c.add += n * c_panel;
    }
  }
};
struct GemmTables {
  const char* name;
  MicroTable<float> f32;
  MicroTable<double> f64;
};
extern const GemmTables kGemmBase, kGemmAvx2, kGemmAvx512;
/// The best tables for this processor, chosen once.
const GemmTables& gemm_tables();
/// Use `t` from now on (nullptr: the best); for tests and benchmarks.
void use_gemm_tables(const GemmTables* t);

template <class T>
const MicroTable<T>& micro_table();

/// c [m, n] (rows of unit stride, c_row apart) = a [m, k] b [k, n] + bias [n], or += it.
template <class T>
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t am = 0, ak = 0;
  const T* b = nullptr;
  int64_t bk = 0, bn = 0;
  T* c = nullptr;
  int64_t c_row = 0;
  const T* bias = nullptr;
  bool accumulate = false;
  const Epilogue* epilogue = nullptr;  ///< called on finished blocks of c
};

/// Scratch bytes of one worker for GEMMs of these sizes; 64-byte aligned.
template <class T>
size_t gemm_scratch(int64_t m, int64_t n, int64_t k);
/// GEMM on the calling thread.
template <class T>
void gemm_serial(const Gemm<T>& g, void* scratch);
/// The part of the row and column blocks that worker `w` of `workers` computes.
template <class T>
void gemm_part(const Gemm<T>& g, int w, int workers, void* scratch);
/// GEMM on num_threads() threads; `scratch` holds gemm_scratch() bytes for each of them.
template <class T>
void gemm(const Gemm<T>& g, int workers, void* scratch);

}  // namespace tandem::detail
