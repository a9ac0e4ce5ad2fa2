// SPDX-License-Identifier: Apache-2.0
// Choice of the tile kernel table by what the processor can run.
#include "tandem/codegen/tile_kernels.h"

#include <atomic>

#include "tandem/base/processor.h"

namespace tandem::codegen {
namespace {

const TileTable* best() {
  const CpuFeatures& f = cpu_features();
  return f.avx512 ? &kTilesAvx512 : f.avx2 ? &kTilesAvx2 : &kTilesBase;
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
  if (cpu_features().avx2) tables[n++] = &kTilesAvx2;
  if (cpu_features().avx512) tables[n++] = &kTilesAvx512;
  return n;
}

void use_tiles(const TileTable* table) { current() = table ? table : best(); }

}  // namespace tandem::codegen
