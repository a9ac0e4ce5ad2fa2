// SPDX-License-Identifier: Apache-2.0
// GEMM tiles of bf16 matrices with sums in f32: VDPBF16PS multiplies pairs along k, TDPBF16PS
// blocks of 32 in the tile registers of AMX. Both treat denormals as zero. A row's bits depend on
// its own numbers, the weights and k, not on the rows beside it.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// c[i, j] = sum over k of a[i * am + k / 2 * ak + k % 2] w[k / 2][j][k % 2] for j < 32; k even,
/// c [rows, 32].
struct Bf16Tile {
  int64_t k = 0;
  const uint16_t* a = nullptr;
  int64_t am = 0, ak = 2;
  const uint16_t* w = nullptr;
  float* c = nullptr;
  bool accumulate = false;  ///< add to what c holds
  bool far = false;  ///< w comes from memory, and what follows it is read next; AMX reads fast
                     ///< enough by itself
};
inline constexpr int kMostBf16Rows = 32;
inline constexpr int64_t kBf16Panel = 32;  ///< columns of a tile
inline constexpr int64_t kBf16Block = 32;  ///< k that AMX multiplies at once

struct Bf16Loops {
  int rows;  ///< most rows of a tile
  /// Tiles of AMX read whole lines of a: ak is 2, and they are fastest where a and its rows lie at
  /// multiples of 64 bytes and k is a multiple of kBf16Block.
  bool by_lines;
  void (*tile)(const Bf16Tile& t, int rows);
  /// A matrix that lies transposed, for tiles: i < rows of from[q * step + i], q < k. By lines,
  /// `to` is [rows][k up to a whole block], with zeros; else it is pairs [k / 2][rows][2].
  void (*turn)(uint16_t* to, const uint16_t* from, int64_t step, int64_t rows, int64_t k);
  /// After a thread's last tile.
  void (*release)();
  /// to[q][i][0, 1] = from[2 q * step + i], from[(2 q + 1) * step + i] for i < n <= width, k / 2
  /// pairs q; zero for n <= i < width and after an odd k.
  void (*pair)(uint16_t* to, int64_t width, const uint16_t* from, int64_t step, int64_t n,
               int64_t k);
  /// to[q][j][0, 1] = from[j * step + 2 q], from[j * step + 2 q + 1] for j < n <= 32, zero beyond n
  /// and k; q < pairs.
  void (*pair_rows)(uint16_t* to, const uint16_t* from, int64_t step, int64_t n, int64_t k,
                    int64_t pairs);
  /// to[q][j][0, 1] = lines[2 q][j], lines[2 q + 1][j] for j < n <= 32, zero beyond n; q < pairs.
  void (*pair_lines)(uint16_t* to, const uint16_t* const* lines, int64_t n, int64_t pairs);
  /// c[i, j] += x[i * x_row + j] for i < rows, j < columns <= 32; c [rows, 32].
  void (*add)(float* c, const uint16_t* x, int64_t x_row, int64_t rows, int64_t columns);
  /// y[i * y_row + j] = c[i, j], rounded to even.
  void (*store)(const float* c, uint16_t* y, int64_t y_row, int64_t rows, int64_t columns);
};
/// The best loops for this processor; nullptr where it has neither AVX-512 BF16 nor a compiler that
/// knows it.
const Bf16Loops* bf16_loops();
/// Those of AVX-512 BF16, and those of AMX; nullptr where there are none.
const Bf16Loops* bf16_vector_loops();
const Bf16Loops* bf16_amx_loops();
/// Use `l` from now on (nullptr: the best); for tests.
void use_bf16_loops(const Bf16Loops* l);

}  // namespace tandem::detail
