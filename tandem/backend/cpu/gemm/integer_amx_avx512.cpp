// SPDX-License-Identifier: Apache-2.0
// Integer tiles of up to 32 rows and a whole panel of 32 columns in the tile registers of AMX
// (TDPBUSD: 16 x 16 sums of 64 products of bytes). Called only where the processor has them and the
// system gives this process their registers.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AMX_INT8__
#include <cstring>

#include "tandem/backend/cpu/gemm/amx_internal.h"
#include "tandem/backend/cpu/registry_internal.h"

namespace tandem::detail {
namespace {

template <bool kSecond, bool kBoth>
void products(const IntegerTile& t, const char* w) {
  const auto am = static_cast<size_t>(t.am);
  const int64_t blocks = (2 * t.pairs + kTileLine - 1) / kTileLine;
  for (int64_t s = 0; s < t.segments; ++s) {
    const uint8_t* a = t.codes + s * t.a_segment;
    for (int64_t b = 0; b < blocks; ++b, a += kTileLine, w += 2 * kTileRows * kTileLine) {
      _tile_loadd(4, a, am);
      _tile_loadd(6, w, kTileLine);
      _tile_dpbusd(0, 4, 6);
      if constexpr (kBoth) {
        _tile_loadd(7, w + kTileRows * kTileLine, kTileLine);
        _tile_dpbusd(1, 4, 7);
      }
      if constexpr (kSecond) {
        _tile_loadd(5, a + t.second, am);
        _tile_dpbusd(2, 5, 6);
        if constexpr (kBoth) _tile_dpbusd(3, 5, 7);
      }
    }
  }
}

template <bool kSecond, bool kBoth>
void store(int32_t* c, int64_t row, int first) {
  const auto step = static_cast<size_t>(row) * sizeof(int32_t);
  _tile_stored(0, c, step);
  if constexpr (kBoth) _tile_stored(1, c + kTileRows, step);
  if constexpr (kSecond) {
    _tile_stored(2, c + first * row, step);
    if constexpr (kBoth) _tile_stored(3, c + first * row + kTileRows, step);
  }
}

// Sums start at the bias, a row that is read for every row. kBoth: of more than 16 columns.
template <bool kSecond, bool kBoth>
void tile(const IntegerTile& t, const char* w, int first, int rows) {
  _tile_loadd(0, t.bias, 0);
  if constexpr (kBoth) _tile_loadd(1, t.bias + kTileRows, 0);
  if constexpr (kSecond) {
    _tile_loadd(2, t.bias, 0);
    if constexpr (kBoth) _tile_loadd(3, t.bias + kTileRows, 0);
  }
  products<kSecond, kBoth>(t, w);
  if (t.spare || t.columns == kTileColumns) return store<kSecond, kBoth>(t.c, t.c_row, first);
  int32_t sums[2 * kTileRows * kTileColumns];
  store<kSecond, kBoth>(sums, kTileColumns, first);
  for (int i = 0; i < rows; ++i)
    std::memcpy(t.c + i * t.c_row, sums + i * kTileColumns,
                static_cast<size_t>(t.columns) * sizeof(int32_t));
}

void run(const IntegerTile& t, const char* w, int first, int second) {
  const bool both = t.columns > kTileRows;
  if (second > 0)
    both ? tile<true, true>(t, w, first, first + second)
         : tile<true, false>(t, w, first, first + second);
  else
    both ? tile<false, true>(t, w, first, first) : tile<false, false>(t, w, first, first);
}

int64_t panel_bytes(int64_t segments, int64_t pairs) {
  return segments * ((2 * pairs + kTileLine - 1) / kTileLine) * 2 * kTileRows * kTileLine;
}

// Blocks of 16 rows, each with four weights of 16 columns; first columns 0-15, then 16-31.
void arrange(const char* from, int64_t segments, int64_t pairs, char* to, int32_t* sums) {
  __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  // Sums of four codes, two and two.
  const auto add = [&](__m512i& s, __m512i four) {
    const __m512i two = _mm512_maddubs_epi16(_mm512_set1_epi8(1), four);
    s = _mm512_add_epi32(s, _mm512_madd_epi16(two, _mm512_set1_epi16(1)));
  };
  const int64_t blocks = (2 * pairs + kTileLine - 1) / kTileLine;
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                high =
                    _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int64_t s = 0; s < segments; ++s)
    for (int64_t b = 0; b < blocks; ++b, to += 2 * kTileRows * kTileLine)
      for (int64_t q = 0; q < kTileRows; ++q) {
        const int64_t pair = 2 * (b * kTileRows + q);
        const char* line = from + (s * pairs + pair) * kTileLine;
        const __m512i none = _mm512_setzero_si512(),
                      even = pair < pairs ? _mm512_loadu_si512(line) : none,
                      odd = pair + 1 < pairs ? _mm512_loadu_si512(line + kTileLine) : none,
                      first = _mm512_unpacklo_epi16(even, odd),
                      second = _mm512_unpackhi_epi16(even, odd),
                      left = _mm512_permutex2var_epi32(first, low, second),
                      right = _mm512_permutex2var_epi32(first, high, second);
        _mm512_storeu_si512(to + q * kTileLine, left);
        _mm512_storeu_si512(to + (kTileRows + q) * kTileLine, right);
        if (sums) add(sum[0], left), add(sum[1], right);
      }
  if (!sums) return;
  _mm512_storeu_si512(sums, sum[0]);
  _mm512_storeu_si512(sums + kTileRows, sum[1]);
}

// Lines of one block need not be longer than the codes.
int64_t line_bytes(int64_t pairs) {
  constexpr int64_t kDepth = 4;
  return std::min((2 * pairs + kDepth - 1) / kDepth * kDepth, kTileLine);
}
int64_t reach(int64_t pairs) {
  const int64_t line = line_bytes(pairs);
  return (2 * pairs + line - 1) / line * line;
}
void configure(int first, int second, int64_t pairs) {
  configure_tiles(first, second, static_cast<int>(line_bytes(pairs)));
}
void release() { _tile_release(); }

constexpr WideTiles kTiles = {panel_bytes, arrange, configure, reach, run, release};

}  // namespace

const IntegerLoops* integer_amx_loops() {
  static const IntegerLoops* const loops = []() -> const IntegerLoops* {
    if (!cpu_features().amx_int8 || !kIntegerVnni.takes_bytes() || !tiles_permitted())
      return nullptr;
    static IntegerLoops amx = kIntegerVnni;
    amx.wide = &kTiles;
    return &amx;
  }();
  return loops;
}

}  // namespace tandem::detail

#else
namespace tandem::detail {
const IntegerLoops* integer_amx_loops() { return nullptr; }
}  // namespace tandem::detail
#endif
