// SPDX-License-Identifier: Apache-2.0
// The tile plans of a ReduceProgram, made once per program and kernel table. Read by the reduce and
// scan kernels only.
#pragma once

#include "tandem/codegen/reduce_program.h"
#include "tandem/codegen/tile_plan.h"

namespace tandem::codegen {

/// "rows" plans take the element index as a tile, "columns" plans as one value.
struct ReducePlans {
  TilePlan step_rows, step_columns, map_rows, map_columns, combine, finish;
};
const ReducePlans& plans_of(const ReduceProgram& p);

}  // namespace tandem::codegen
