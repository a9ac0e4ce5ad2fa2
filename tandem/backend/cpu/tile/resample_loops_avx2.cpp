// SPDX-License-Identifier: Apache-2.0
// The resampling loop for AVX2.
#include "tandem/backend/cpu/tile/resample_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/backend/cpu/tile/resample_loops.inc"
}  // namespace

constinit const ResampleLoops kResampleAvx2{combine<float>, combine<double>};

}  // namespace tandem::detail
