// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU backend that move and make elements: register_cpu_backend() calls this.
#pragma once

namespace tandem::detail {

/// Copies of transposed matrices, random numbers and dropout in vector code.
void register_copy_kernels();

}  // namespace tandem::detail
