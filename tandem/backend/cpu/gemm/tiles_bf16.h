// SPDX-License-Identifier: Apache-2.0
// GEMM tiles of bf16 matrices with sums in f32 (VDPBF16PS: pairs along k; denormals are treated as
// zero).
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
};
inline constexpr int kBf16Rows = 14;

struct Bf16Loops {
  /// tile[rows - 1]
  void (*tile[kBf16Rows])(const Bf16Tile& t);
  /// to[q][i][0, 1] = from[2 q * step + i], from[(2 q + 1) * step + i] for i < n <= width, k / 2
  /// pairs q; zero for n <= i < width and after an odd k.
  void (*pair)(uint16_t* to, int64_t width, const uint16_t* from, int64_t step, int64_t n,
               int64_t k);
  /// c[i, j] += x[i * x_row + j] for i < rows, j < columns <= 32; c [rows, 32].
  void (*add)(float* c, const uint16_t* x, int64_t x_row, int64_t rows, int64_t columns);
  /// y[i * y_row + j] = c[i, j], rounded to even.
  void (*store)(const float* c, uint16_t* y, int64_t y_row, int64_t rows, int64_t columns);
};
/// Called only where the processor has AVX-512 BF16; nullptr if the compiler lacks it.
const Bf16Loops* bf16_loops();

}  // namespace tandem::detail
