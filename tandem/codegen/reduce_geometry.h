// SPDX-License-Identifier: Apache-2.0
// The loops of one reduction: kept and reduced dimensions merged apart, and whether rows or columns
// run along memory. Used by the reduce kernel only.
#pragma once

#include "tandem/codegen/tile_loop.h"
#include "tandem/graph/kernel.h"

namespace tandem::codegen {

struct ReduceGeometry {
  TileLoop kept;     // arrays: x, outputs
  TileLoop reduced;  // array: x
  int64_t n_kept = 1, n_reduced = 1;
  bool rows = true;
};

/// `ordered`: the reduced elements keep their order, which the row asks for.
ReduceGeometry make_reduce_geometry(const KernelCall& call, bool ordered);

}  // namespace tandem::codegen
