// SPDX-License-Identifier: Apache-2.0
// The loops of the row fft (fft_eigen.cpp), used as its reference. Not installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void run_fft(const KernelCall& k);

}  // namespace tandem::detail
