// SPDX-License-Identifier: Apache-2.0
// bf16 matmuls whose first matrix is transposed, for rows other than matmul, too.
#pragma once

#include "tandem/backend/cpu/gemm/matmul_internal.h"
#include "tandem/graph/epilogue.h"

namespace tandem::detail {

struct TurnedPlan : EpiloguePlan {
  MatmulProblem p;
  int workers = 1;
  size_t own_at = 0, own_bytes = 0;  ///< a tile of the first matrix, for each worker

  int64_t pairs() const { return (p.k + 1) / 2; }
  int64_t panels() const;
  int64_t tiles() const;
};

/// Whether this processor computes such a problem: the rows of both matrices run along k.
bool takes_turned_bf16(const MatmulProblem& p);
/// Fills `plan`; its workspace is what run_turned_bf16() needs at `scratch`.
void plan_turned_bf16(TurnedPlan& plan, const MatmulProblem& p);
/// y [m, n] = a^T b with a [k, m], b [k, n], rows of the plan's strides; all of them bf16.
void run_turned_bf16(const TurnedPlan& plan, const uint16_t* a, const uint16_t* b, uint16_t* y,
                     void* scratch, const Epilogue* epilogue);

}  // namespace tandem::detail
