// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX, for files that are compiled for them: eight of 16 rows of 64 bytes.
// Registers 0 to 3 hold sums of 32 rows and 32 columns, 4 and 5 rows of the first matrix, 6 and 7
// two halves of a panel of the second.
#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tandem::detail {
namespace {

constexpr int kTileRows = 16;         ///< of one register
constexpr int64_t kTileLine = 64;     ///< bytes of a row of one
constexpr int64_t kTileColumns = 32;  ///< of a panel

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Of tiles with `first` rows (at most 16) and `second` more, whose lines have `bytes` bytes, a
/// multiple of 4.
inline void configure_tiles(int first, int second, int bytes = kTileLine) {
  TileConfig c;
  for (int i = 0; i < 8; ++i) c.bytes[i] = kTileLine;
  c.rows[0] = c.rows[1] = c.rows[4] = static_cast<uint8_t>(first);
  c.rows[2] = c.rows[3] = c.rows[5] = static_cast<uint8_t>(std::max(second, 1));
  constexpr int kDepth = 4;  // bytes of a row of the second matrix that one sum takes
  c.bytes[4] = c.bytes[5] = static_cast<uint16_t>(bytes);
  c.rows[6] = c.rows[7] = static_cast<uint8_t>(bytes / kDepth);
  // g++ 12 takes the intrinsic to read the first 8 bytes alone, and leaves out stores to others.
  __asm__ volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}

/// Linux gives the registers to a process that asks for them.
inline bool tiles_permitted() {
  constexpr long kAsk = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
}

}  // namespace
}  // namespace tandem::detail
