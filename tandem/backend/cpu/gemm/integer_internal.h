// SPDX-License-Identifier: Apache-2.0
// Tiles of exact integer matmuls: codes less their zero points are 16 bits wide, two products are
// added to a sum of 32 bits at once. Neither overflows: a product of two differences of bytes is
// less than 2^16, where VPMADDUBSW, which multiplies bytes, would saturate sums of two at 2^15.
// VPDPBUSD adds four products of bytes to 32 bits; what the zero point contributes is then one
// number for each column, since the padding holds the zero point, too.
#pragma once

#include <cstdint>

namespace tandem::detail {

/// c[i, j] = bias[j] (or 0) + sum over segments s and k < 2 * pairs of a[i * am + s * a_segment +
/// k] times the weight of column j, for i < rows, j < columns.
struct IntegerTile {
  int64_t pairs = 0, segments = 1;
  const int16_t* a = nullptr;
  int64_t am = 0, a_segment = 0;
  const void* w = nullptr;  ///< i8 [segments][pairs][32][2] (op::pack_integer)
  int32_t* c = nullptr;
  int64_t c_row = 0;
  const int32_t* bias = nullptr;
  int columns = 0;
  bool accumulate = false;         ///< add to what c holds, not to the bias
  const uint8_t* codes = nullptr;  ///< of a tile of bytes, in place of a
  int64_t second = 0;           ///< of a wide tile: from the codes of its first rows to the others
  const char* ahead = nullptr;  ///< prefetched, a line for each pair
};
/// c[i, j] -= sums[i] * zero[j].
struct IntegerFinish {
  int32_t* c = nullptr;
  int64_t c_row = 0, rows = 0, columns = 0;
  const int32_t *sums = nullptr, *zero = nullptr;
};
/// Tiles of up to 32 rows over a whole panel of u8 codes, whose weights have to be arranged first.
/// They read up to 63 codes beyond the last, whose weights are 0.
struct WideTiles {
  /// Bytes of an arranged panel, a multiple of 64.
  int64_t (*panel_bytes)(int64_t segments, int64_t pairs);
  void (*arrange)(const char* packed, int64_t segments, int64_t pairs, char* to);
  /// Of tiles with `first` rows (at most 16) and 0 to 16 more; before run(), in each thread.
  void (*configure)(int first, int second);
  /// t.bias has 32 numbers; t.w is not read. The rows are those of configure().
  void (*run)(const IntegerTile& t, const char* arranged, int first, int second);
  void (*release)();
};
inline constexpr int kMostWideRows = 32;

inline constexpr int kMostIntegerRows = 12, kMostIntegerVectors = 4;

struct IntegerLoops {
  int rows;   ///< most rows of a tile
  int width;  ///< columns of one vector
  /// [rows - 1][vectors - 1]
  void (*tile[kMostIntegerRows][kMostIntegerVectors])(const IntegerTile&);
  /// Most vectors of a tile. Few rows leave registers for a whole panel, which is then read once.
  int vectors(int64_t tile_rows) const { return tile_rows <= 2 && width == 8 ? 4 : 2; }
  /// to[i] = from[i] - zero for i < n, from u8 or i8.
  void (*centre_u8)(int16_t* to, const uint8_t* from, int64_t n, int32_t zero);
  void (*centre_i8)(int16_t* to, const int8_t* from, int64_t n, int32_t zero);
  int32_t (*sum)(const int16_t* x, int64_t n);
  int32_t (*sum_codes)(const uint8_t* x, int64_t n);
  void (*finish)(const IntegerFinish& f);
  /// [rows - 1]: tiles of a whole panel over u8 codes, which multiply four pairs of bytes at once;
  /// read up to 3 codes beyond the last, whose weights are 0. None where the processor has no such
  /// instruction.
  void (*byte_tile[kMostIntegerRows])(const IntegerTile&) = {};
  const WideTiles* wide = nullptr;  ///< in place of byte_tile
  bool takes_bytes() const { return byte_tile[0] != nullptr; }
};
extern const IntegerLoops kIntegerBase, kIntegerAvx2, kIntegerAvx512, kIntegerVnni;
/// kIntegerVnni with tiles of AMX; nullptr where there are none.
const IntegerLoops* integer_amx_loops();
/// The best loops for this processor.
const IntegerLoops& integer_loops();
/// Use `t` from now on (nullptr: the best); for tests.
void use_integer_loops(const IntegerLoops* t);

}  // namespace tandem::detail
