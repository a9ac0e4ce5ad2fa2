// SPDX-License-Identifier: Apache-2.0
// The tile kernels for processors with AVX2; tile_kernels.cpp chooses among the tables at run time.
#define TD_TILE_TABLE kTilesAvx2
#define TD_TILE_NAME "avx2"
#include "tandem/codegen/tile_kernels.inc"
