// SPDX-License-Identifier: Apache-2.0
// What this machine reaches at best, measured: the yardstick of Profile::table().
#pragma once

#include "tandem/graph/profiler.h"

namespace tandem {

/// f32 GFLOP/s of a large matrix product and GB/s of a large copy with the present number of
/// threads. Measured once per number of threads, in about a tenth of a second.
TD_API MachineLimits machine_limits();

}  // namespace tandem
