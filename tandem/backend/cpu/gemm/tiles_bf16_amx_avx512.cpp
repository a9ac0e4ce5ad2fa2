// SPDX-License-Identifier: Apache-2.0
// Tiles of up to 32 rows and 32 columns in the tile registers of AMX (TDPBF16PS: sums of 16 x 16
// over 32 along k). Called only where the processor has them and the system gives this process
// their registers.
#include "tandem/backend/cpu/gemm/tiles_bf16.h"

#ifdef __AMX_BF16__
#include <cstring>

#include "tandem/backend/cpu/gemm/amx_internal.h"
#include "tandem/backend/cpu/gemm/turn_internal.h"
#include "tandem/base/processor.h"

namespace tandem::detail {
namespace {

constexpr int64_t kRow = 2 * kBf16Panel;  ///< numbers of a pair of rows of a panel

// Rows of this thread's tiles; 0: the registers are free.
thread_local int configured = 0;

template <bool kSecond>
void multiply(const uint16_t* a, int64_t am, const uint16_t* w) {
  constexpr auto kStep = static_cast<size_t>(kRow) * sizeof(uint16_t);
  const auto step = static_cast<size_t>(am) * sizeof(uint16_t);
  _tile_loadd(6, w, kStep);
  _tile_loadd(4, a, step);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, w + kRow / 2, kStep);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kSecond) {
    _tile_loadd(5, a + kTileRows * am, step);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Less than a block, filled up with zeros: what lies behind it belongs to others.
template <bool kSecond>
void multiply_rest(const Bf16Tile& t, int64_t k, int rows) {
  alignas(64) uint16_t a[kMostBf16Rows * kBf16Block] = {}, w[kBf16Block / 2 * kRow] = {};
  const auto left = static_cast<size_t>(t.k - k);
  for (int i = 0; i < rows; ++i)
    std::memcpy(a + i * kBf16Block, t.a + i * t.am + k, left * sizeof(uint16_t));
  std::memcpy(w, t.w + k / 2 * kRow, left / 2 * kRow * sizeof(uint16_t));
  // g++ 12 takes the intrinsics to read nothing.
  __asm__ volatile("" : : "r"(a), "r"(w) : "memory");
  multiply<kSecond>(a, kBf16Block, w);
}

template <bool kSecond>
void tile_of(const Bf16Tile& t, int rows) {
  constexpr size_t kStep = kTileColumns * sizeof(float);
  float *second = t.c + kTileRows, *third = t.c + kTileRows * kTileColumns,
        *fourth = third + kTileRows;
  if (t.accumulate) {
    _tile_loadd(0, t.c, kStep);
    _tile_loadd(1, second, kStep);
    if constexpr (kSecond) {
      _tile_loadd(2, third, kStep);
      _tile_loadd(3, fourth, kStep);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kSecond) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  int64_t k = 0;
  for (; k + kBf16Block <= t.k; k += kBf16Block)
    multiply<kSecond>(t.a + k, t.am, t.w + k / 2 * kRow);
  if (k < t.k) multiply_rest<kSecond>(t, k, rows);
  _tile_stored(0, t.c, kStep);
  _tile_stored(1, second, kStep);
  if constexpr (kSecond) {
    _tile_stored(2, third, kStep);
    _tile_stored(3, fourth, kStep);
  }
}

void tile(const Bf16Tile& t, int rows) {
  if (configured != rows) {
    configure_tiles(std::min(rows, kTileRows), std::max(rows - kTileRows, 0));
    configured = rows;
  }
  if (rows > kTileRows)
    tile_of<true>(t, rows);
  else
    tile_of<false>(t, rows);
}

void release() {
  _tile_release();
  configured = 0;
}

// 16 rows of a whole block of k at a time.
void turn(uint16_t* to, const uint16_t* from, int64_t step, int64_t rows, int64_t k) {
  const int64_t row = (k + kBf16Block - 1) / kBf16Block * kBf16Block;
  for (int64_t i = 0; i < rows; i += 16) {
    const int64_t count = std::min<int64_t>(16, rows - i);
    const auto m = static_cast<__mmask16>((1u << count) - 1);
    for (int64_t q = 0; q < row; q += kBf16Block) {
      __m512i v[16];
      for (int64_t p = 0; p < 16; ++p) {
        const int64_t at = q + 2 * p;
        const uint16_t* line = from + at * step + i;
        const __mmask16 low = at < k ? m : __mmask16(0), high = at + 1 < k ? m : __mmask16(0);
        v[p] = _mm512_or_si512(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, line)),
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(high, line + step)),
                              16));
      }
      turn_dwords(v);
      for (int64_t p = 0; p < count; ++p) _mm512_storeu_si512(to + (i + p) * row + q, v[p]);
    }
  }
}

}  // namespace

const Bf16Loops* bf16_amx_loops() {
  static const Bf16Loops* const loops = []() -> const Bf16Loops* {
    if (!cpu_features().amx || !bf16_vector_loops() || !tiles_permitted()) return nullptr;
    static Bf16Loops amx = *bf16_vector_loops();
    amx.rows = kMostBf16Rows;
    amx.by_lines = true;
    amx.tile = tile;
    amx.turn = turn;
    amx.release = release;
    return &amx;
  }();
  return loops;
}

}  // namespace tandem::detail

#else
namespace tandem::detail {
const Bf16Loops* bf16_amx_loops() { return nullptr; }
}  // namespace tandem::detail
#endif
