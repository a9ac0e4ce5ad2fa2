// SPDX-License-Identifier: Apache-2.0
// The reference kernels of the pooling rows, used by pool.cpp.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void max_pool_reference(const KernelCall& c);
void max_pool_backward_reference(const KernelCall& c);
void avg_pool_reference(const KernelCall& c);
void avg_pool_backward_reference(const KernelCall& c);

}  // namespace tandem::detail
