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
  bool spare = false;              ///< of a wide tile: c has room for 32 columns
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
struct WideTiles {
  /// Bytes of an arranged panel, a multiple of 64.
  int64_t (*panel_bytes)(int64_t segments, int64_t pairs);
  /// sums: of each of the 32 columns, if not nullptr.
  void (*arrange)(const char* packed, int64_t segments, int64_t pairs, char* to, int32_t* sums);
  /// Of tiles with `first` rows (at most 16) and 0 to 16 more; before run(), in each thread.
  void (*configure)(int first, int second, int64_t pairs);
  /// Codes of a segment of a row that a tile reads, whose weights may be 0.
  int64_t (*reach)(int64_t pairs);
  /// t.bias has 32 numbers; t.w is not read. The rows are those of configure().
  void (*run)(const IntegerTile& t, const char* arranged, int first, int second);
  void (*release)();
};
inline constexpr int kMostWideRows = 32;

/// Winograd's tiles over codes (ops/matmul/integer_winograd.h).
struct IntegerWinogradLoops {
  /// The codes of 4 x 4 pixels less their zero point, transformed: v[e * plane + k] for k < c, a
  /// multiple of 16 of which are written. Pixels outside of r0..r1-1, q0..q1-1 count as zero.
  struct In {
    const uint8_t* x = nullptr;
    int64_t row = 0, step = 0, c = 0, plane = 0;
    int r0 = 0, r1 = 0, q0 = 0, q1 = 0;
    int32_t zero = 0;
    int16_t* v = nullptr;
  };
  /// bias + a quarter of the transformed sums m[e * plane + j], for 2 x 2 pixels of which rows x
  /// columns are stored, and the first `channels` of 32 columns.
  struct Out {
    const int32_t *m = nullptr, *bias = nullptr;
    int64_t plane = 0, row = 0, step = 0, channels = 0;
    int rows = 0, columns = 0;
    int32_t* y = nullptr;
  };
  void (*in_u8)(const In&);
  void (*in_i8)(const In&);
  void (*out)(const Out&);
};
/// nullptr where the tiles of a whole convolution are as fast (VPDPBUSD, AMX), or nothing is known.
const IntegerWinogradLoops* integer_winograd_loops();

inline constexpr int kMostIntegerRows = 12, kMostIntegerVectors = 4, kShortRows = 3;

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
  /// [rows - 1]: tiles of a whole panel whose weights are i16, as Winograd's are; kIntegerAvx2 has
  /// them.
  void (*short_tile[kShortRows])(const IntegerTile&) = {};
  bool takes_bytes() const { return byte_tile[0] != nullptr; }
};
extern const IntegerWinogradLoops kIntegerWinogradAvx2;
extern const IntegerLoops kIntegerBase, kIntegerAvx2, kIntegerAvx512, kIntegerVnni;
/// kIntegerVnni with tiles of AMX; nullptr where there are none.
const IntegerLoops* integer_amx_loops();
/// The best loops for this processor.
const IntegerLoops& integer_loops();
/// Use `t` from now on (nullptr: the best); for tests.
void use_integer_loops(const IntegerLoops* t);

}  // namespace tandem::detail
