// SPDX-License-Identifier: Apache-2.0
// Text of a tiled matmul y[row, col] = sum over k of a[row, k] b[k, col], for matmul and, with
// other ways to find an element, for convolutions. Tiles of y lie in registers, tiles of a and b in
// shared memory. f16 and bf16 are multiplied and added in f32, integers in 64 bits that wrap;
// products are added in the order of k, each rounded once (fma).
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"

namespace tandem::gpu {

/// Elements of y of one thread along each side: 4 for matrices that fill such tiles, else 1.
int tile_per_thread(int64_t m, int64_t n);

struct TiledText {
  static constexpr int kSide = 16;              ///< threads of a block along each side
  static constexpr int kBlock = kSide * kSide;  ///< threads
  static constexpr int kDepth = 16;             ///< of a tile along k

  const char* name = "";
  DType y{}, a{}, b{};
  int per_thread = 1;
  /// Neighbouring threads load neighbours along k, not along rows or columns.
  bool a_along_k = true, b_along_k = true;
  std::vector<Parameter> inputs;     ///< after y, a, b
  std::vector<std::string> numbers;  ///< i64, after m, n, k, tiles_m, tiles_n
  /// Lines that read td_i64 `tile`, the number of the matmul in its batch.
  std::string batch;
  /// Statements that set `v`, which is 0, from td_i64 `row` or `col` and `at`, the place along k.
  std::string load_a, load_b;
  std::string before_store;  ///< statements before the element (row, col) of y is written
  std::string place;         ///< of that element, from `row`, `col` and what before_store defines
  std::string added;         ///< to the sum, from `col`; "" for nothing

  int tile() const { return kSide * per_thread; }
  bool whole() const { return !is_floating(y); }
  /// The type of sums.
  DType sum() const { return whole() ? DType::i64 : y == DType::f64 ? DType::f64 : DType::f32; }
  /// Element `place` of an array of y's dtype as a number of that type.
  std::string element(const std::string& array, const std::string& place) const;
  KernelSource source() const;
};

/// The arguments m ... tiles_n of `count` matmuls, and the blocks of their launch.
Extent argue_tiles(Arguments& a, int per_thread, int64_t count, int64_t m, int64_t n, int64_t k);

}  // namespace tandem::gpu
