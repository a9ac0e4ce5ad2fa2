// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU backend that make random elements; register_cpu_backend() registers them.
#pragma once

namespace tandem::detail {

/// Vectorised random numbers and dropout.
void register_random_kernels();

}  // namespace tandem::detail
