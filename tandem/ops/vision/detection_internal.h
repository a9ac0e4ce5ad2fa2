// SPDX-License-Identifier: Apache-2.0
// The reference kernels of the detection rows, used by detection.cpp.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void nms_reference(const KernelCall& c);
void roi_align_reference(const KernelCall& c);
void roi_align_backward_reference(const KernelCall& c);
void roi_pool_indices_reference(const KernelCall& c);

}  // namespace tandem::detail
