// SPDX-License-Identifier: Apache-2.0
// The tile kernels for processors with AVX512; tile_kernels.cpp chooses among the tables at run
// time.
#define TD_TILE_TABLE kTilesAvx512
#define TD_TILE_NAME "avx512"
#include "tandem/codegen/tile_kernels.inc"
