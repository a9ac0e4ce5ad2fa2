// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of lines for AVX-512.
#include <algorithm>

#include "tandem/backend/cpu/rows/fft_loops_internal.h"

namespace tandem::detail {
namespace {
#include "tandem/ops/linalg/fft_lines.inc"
}  // namespace

constinit const FftLoops kFftAvx512 = kLoops;

}  // namespace tandem::detail
