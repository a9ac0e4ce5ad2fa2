// SPDX-License-Identifier: Apache-2.0
// Choice of the tile kernel table by what the processor can run.
#include "tandem/codegen/tile_kernels.h"

#include <atomic>

namespace tandem::codegen {
namespace {

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

const TileTable* best() {
  return has_avx512() ? &kTilesAvx512 : has_avx2() ? &kTilesAvx2 : &kTilesBase;
}

std::atomic<const TileTable*>& current() {
  static std::atomic<const TileTable*> table{best()};
  return table;
}

}  // namespace

const TileTable& tiles() { return *current().load(std::memory_order_relaxed); }

int all_tiles(const TileTable* (&tables)[3]) {
  int n = 0;
  tables[n++] = &kTilesBase;
  if (has_avx2()) tables[n++] = &kTilesAvx2;
  if (has_avx512()) tables[n++] = &kTilesAvx512;
  return n;
}

void use_tiles(const TileTable* table) { current() = table ? table : best(); }

}  // namespace tandem::codegen
