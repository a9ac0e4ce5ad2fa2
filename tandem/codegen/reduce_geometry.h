// SPDX-License-Identifier: Apache-2.0
// The loops of one reduction: kept and reduced dimensions merged apart, and whether rows or columns
// are taken. The order of the reduced elements follows from shape and reduced dimensions alone, as
// if x were row-major; how x lies only decides how its elements are fetched. So a copy, a view or a
// transposed layout in front of a sum never changes its bits. Used by the reduce kernel only.
#pragma once

#include "tandem/codegen/tile_loop.h"
#include "tandem/graph/kernel.h"

namespace tandem::codegen {

struct ReduceGeometry {
  TileLoop kept;     // arrays: x, outputs
  TileLoop reduced;  // array: x; the dimensions in their order
  int64_t n_kept = 1, n_reduced = 1;
  int64_t run = 1;             // reduced elements that follow one another in a row-major x
  bool rows = true;            // else columns
  bool kept_is_inner = false;  // in a row-major x

  bool one_run() const { return run == n_reduced; }
};

ReduceGeometry make_reduce_geometry(const KernelCall& call);

}  // namespace tandem::codegen
