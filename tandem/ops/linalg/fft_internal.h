// SPDX-License-Identifier: Apache-2.0
// The loops of the rows fft, rfft and irfft (fft_eigen.cpp), used as their references. Not
// installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void run_fft(const KernelCall& k);
void run_rfft(const KernelCall& k);
void run_irfft(const KernelCall& k);

}  // namespace tandem::detail
