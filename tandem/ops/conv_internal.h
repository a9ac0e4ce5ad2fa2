// SPDX-License-Identifier: Apache-2.0
// The references of the convolution rows, named by conv.cpp.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void conv_reference(const KernelCall& c);
void conv_backward_input_reference(const KernelCall& c);
void conv_backward_weight_reference(const KernelCall& c);

}  // namespace tandem::detail
