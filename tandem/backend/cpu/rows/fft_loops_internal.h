// SPDX-License-Identifier: Apache-2.0
// The loops of Fourier transforms, compiled for wider instruction sets than their reference.
#pragma once

#include "tandem/ops/linalg/fft_internal.h"

namespace tandem::detail {

extern const FftLoops kFftAvx2, kFftAvx512;

}  // namespace tandem::detail
