// SPDX-License-Identifier: Apache-2.0
// What pool.cpp and pool_more.cpp share, and the reference kernels of the pooling rows.
#pragma once

#include "tandem/graph/kernel.h"
#include "tandem/tensor/tensor.h"

namespace tandem::detail {

void max_pool_reference(const KernelCall& c);
void max_pool_backward_reference(const KernelCall& c);
void avg_pool_reference(const KernelCall& c);
void avg_pool_backward_reference(const KernelCall& c);

/// Throws Shape unless x has `d` spatial dimensions after [n, channels] or [channels].
inline void check_pool_input(const Tensor& x, int d) {
  TD_CHECK(x.dim() == d + 1 || x.dim() == d + 2, Shape,
           "x is {}, expected [n, channels{}] or the same without n", x.shape().to_string(),
           d == 1   ? ", l"
           : d == 2 ? ", h, w"
                    : ", d, h, w");
}

}  // namespace tandem::detail
