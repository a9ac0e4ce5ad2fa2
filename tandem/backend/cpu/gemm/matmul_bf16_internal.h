// SPDX-License-Identifier: Apache-2.0
// Matmuls of bf16, for rows other than matmul and linear, too.
#pragma once

#include "tandem/backend/cpu/gemm/matmul_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/graph/epilogue.h"

namespace tandem::detail {

struct Bf16MatmulPlan : EpiloguePlan {
  MatmulProblem p;
  const Bf16Loops* loops = nullptr;
  int workers = 1;
  int64_t depth = 0;      ///< pairs of a panel
  int64_t piece = 0;      ///< of k that tiles multiply before they move on
  int64_t tiles = 0;      ///< of one height, over all rows
  int64_t high = 0;       ///< tiles of a block
  int64_t wide = 0;       ///< panels of a block
  bool lays_a = false;    ///< the first matrix is copied in the order in which tiles read it
  bool by_batch = false;  ///< a worker computes whole matrices of a batch
  size_t panels_at = 0;   ///< the second matrix in panels of pairs
  size_t sums_at = 0, sums_bytes = 0;  ///< of a block, for each worker
  size_t batch_bytes = 0;              ///< all of it, of one worker's matrices

  int64_t panels() const;
  int64_t first_row(int64_t tile) const { return p.m * tile / tiles; }
};

/// Whether matmuls of these strides are computed here: with AMX where both matrices have rows or
/// columns that lie in order, with AVX-512 BF16 where the rows of both run along k.
bool takes_matmul_bf16(const MatmulProblem& p);
/// Fills `plan`; its workspace is what run_matmul_bf16() needs at `scratch`.
void plan_matmul_bf16(Bf16MatmulPlan& plan, const MatmulProblem& p);
/// y [m, n] = a b + bias for every matrix of the batch, with the plan's strides; `bias` [n] may be
/// nullptr. Sums are f32 over all of k in one chain and rounded once: bits do not depend on the
/// thread count or on the other rows.
void run_matmul_bf16(const Bf16MatmulPlan& plan, const uint16_t* a, const uint16_t* b,
                     const uint16_t* bias, uint16_t* y, void* scratch, const Epilogue* epilogue);

}  // namespace tandem::detail
