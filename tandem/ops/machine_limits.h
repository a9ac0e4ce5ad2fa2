// SPDX-License-Identifier: Apache-2.0
// Measured peak rates of this machine: the reference for Profile::table().
#pragma once

#include "tandem/graph/profiler.h"

namespace tandem {

/// f32 GFLOP/s of a large matmul and GB/s of a large copy with the current number of threads.
/// Measured once per number of threads, in about a tenth of a second.
TD_API MachineLimits machine_limits();

}  // namespace tandem
