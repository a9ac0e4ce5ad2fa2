// SPDX-License-Identifier: Apache-2.0
// The resampling loop for any processor.
#include "tandem/backend/cpu/tile/resample_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/backend/cpu/tile/resample_loops.inc"
}  // namespace

constinit const ResampleLoops kResampleBase{combine<float>, combine<double>};

}  // namespace tandem::detail
