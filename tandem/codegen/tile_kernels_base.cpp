// SPDX-License-Identifier: Apache-2.0
// The tile kernels for the baseline processor; tile_kernels.cpp chooses among the tables at run
// time.
#define TD_TILE_TABLE kTilesBase
#define TD_TILE_NAME "base"
#include "tandem/codegen/tile_kernels.inc"
