// SPDX-License-Identifier: Apache-2.0
// Reductions over the ranks' arrays, and other loops over elements of a dtype.
#pragma once

#include <span>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

/// out[i] = reduction of parts[r][i] by the tree over neighbours: left and right half of the ranks,
/// cut at the largest power of two below their number. f16 and bf16 are reduced in f32 and rounded
/// once; integers wrap around; a NaN makes the result NaN. `out` may be one of the parts. With a
/// divisor the results are those of divide() afterwards.
void reduce_parts(std::span<const void* const> parts, void* out, int64_t n, DType dtype,
                  ReduceOp op, double divisor = 1);
/// a[i] /= divisor; floating dtypes, of which 16 bits are divided in f32.
void divide(Array a, double divisor);

}  // namespace tandem::distributed
