// SPDX-License-Identifier: Apache-2.0
// The pointwise kernel: runs the ScalarProgram of a row over arrays of any shape, stride and dtype
// by tiles. The cpu backend registers pointwise_kernel() for every row of the family.
#pragma once

#include "tandem/codegen/tile_loop.h"
#include "tandem/graph/op_def.h"

namespace tandem::codegen {

/// Run the row's program. An output may be the same array as an input (a donated buffer).
void run_pointwise(const KernelCall& call);
/// Run `program` itself. `keep`: the program lives forever, so what is made of it may be kept.
void run_program(const ScalarProgram& program, const Array* in, int n_in, Array* out, int n_out,
                 ErrorWord* error, bool keep);

/// The kernel of the pointwise family.
const Kernel& pointwise_kernel();

/// A loop for equal-shaped dense f32 arrays if the row's program is that simple, else nullptr.
FastF32 fast_f32_of(const OpDef& op);

}  // namespace tandem::codegen
