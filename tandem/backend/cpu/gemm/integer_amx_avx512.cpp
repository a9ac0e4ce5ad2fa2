// SPDX-License-Identifier: Apache-2.0
// Integer tiles of up to 32 rows and a whole panel of 32 columns in the tile registers of AMX
// (TDPBUSD: 16 x 16 sums of 64 products of bytes). Called only where the processor has them and the
// system gives this process their registers.
#include "tandem/backend/cpu/gemm/integer_internal.h"

#ifdef __AMX_INT8__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/registry_internal.h"

namespace tandem::detail {
namespace {

constexpr int kRows = 16;         ///< of one register
constexpr int64_t kLine = 64;     ///< bytes of a row of one
constexpr int64_t kColumns = 32;  ///< of a panel

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Registers 0 to 3 hold sums, 4 and 5 rows of codes, 6 and 7 weights.
void configure(int first, int second) {
  TileConfig c;
  for (int i = 0; i < 8; ++i) c.bytes[i] = kLine;
  c.rows[0] = c.rows[1] = c.rows[4] = static_cast<uint8_t>(first);
  c.rows[2] = c.rows[3] = c.rows[5] = static_cast<uint8_t>(std::max(second, 1));
  c.rows[6] = c.rows[7] = kRows;
  // g++ 12 takes the intrinsic to read the first 8 bytes alone, and leaves out stores to others.
  __asm__ volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}

template <bool kSecond>
void products(const IntegerTile& t, const char* w) {
  const auto am = static_cast<size_t>(t.am);
  const int64_t blocks = (2 * t.pairs + kLine - 1) / kLine;
  for (int64_t s = 0; s < t.segments; ++s) {
    const uint8_t* a = t.codes + s * t.a_segment;
    for (int64_t b = 0; b < blocks; ++b, a += kLine, w += 2 * kRows * kLine) {
      _tile_loadd(4, a, am);
      _tile_loadd(6, w, kLine);
      _tile_dpbusd(0, 4, 6);
      _tile_loadd(7, w + kRows * kLine, kLine);
      _tile_dpbusd(1, 4, 7);
      if constexpr (kSecond) {
        _tile_loadd(5, a + t.second, am);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      }
    }
  }
}

template <bool kSecond>
void store(int32_t* c, int64_t row, int first) {
  const auto step = static_cast<size_t>(row) * sizeof(int32_t);
  _tile_stored(0, c, step);
  _tile_stored(1, c + kRows, step);
  if constexpr (kSecond) {
    _tile_stored(2, c + first * row, step);
    _tile_stored(3, c + first * row + kRows, step);
  }
}

// Sums start at the bias, a row that is read for every row.
template <bool kSecond>
void tile(const IntegerTile& t, const char* w, int first, int rows) {
  _tile_loadd(0, t.bias, 0);
  _tile_loadd(1, t.bias + kRows, 0);
  if constexpr (kSecond) {
    _tile_loadd(2, t.bias, 0);
    _tile_loadd(3, t.bias + kRows, 0);
  }
  products<kSecond>(t, w);
  if (t.columns == kColumns) return store<kSecond>(t.c, t.c_row, first);
  int32_t sums[2 * kRows * kColumns];
  store<kSecond>(sums, kColumns, first);
  for (int i = 0; i < rows; ++i)
    std::memcpy(t.c + i * t.c_row, sums + i * kColumns,
                static_cast<size_t>(t.columns) * sizeof(int32_t));
}

void run(const IntegerTile& t, const char* w, int first, int second) {
  if (second > 0)
    tile<true>(t, w, first, first + second);
  else
    tile<false>(t, w, first, first);
}

int64_t panel_bytes(int64_t segments, int64_t pairs) {
  return segments * ((2 * pairs + kLine - 1) / kLine) * 2 * kRows * kLine;
}

// Blocks of 16 rows, each with four weights of 16 columns; first columns 0-15, then 16-31.
void arrange(const char* from, int64_t segments, int64_t pairs, char* to) {
  const int64_t blocks = (2 * pairs + kLine - 1) / kLine;
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                high =
                    _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int64_t s = 0; s < segments; ++s)
    for (int64_t b = 0; b < blocks; ++b, to += 2 * kRows * kLine)
      for (int64_t q = 0; q < kRows; ++q) {
        const int64_t pair = 2 * (b * kRows + q);
        const char* line = from + (s * pairs + pair) * kLine;
        const __m512i none = _mm512_setzero_si512(),
                      even = pair < pairs ? _mm512_loadu_si512(line) : none,
                      odd = pair + 1 < pairs ? _mm512_loadu_si512(line + kLine) : none,
                      first = _mm512_unpacklo_epi16(even, odd),
                      second = _mm512_unpackhi_epi16(even, odd);
        _mm512_storeu_si512(to + q * kLine, _mm512_permutex2var_epi32(first, low, second));
        _mm512_storeu_si512(to + (kRows + q) * kLine,
                            _mm512_permutex2var_epi32(first, high, second));
      }
}

void release() { _tile_release(); }

constexpr WideTiles kTiles = {panel_bytes, arrange, configure, run, release};

// Linux gives the registers to a process that asks for them.
bool permitted() {
  constexpr long kAsk = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
}

}  // namespace

const IntegerLoops* integer_amx_loops() {
  static const IntegerLoops* const loops = []() -> const IntegerLoops* {
    if (!cpu_features().amx_int8 || !kIntegerVnni.takes_bytes() || !permitted()) return nullptr;
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
