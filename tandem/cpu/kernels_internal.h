// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU backend that make random elements: register_cpu_backend() calls this. Copies,
// joins and indexing need none: their references in ops are the fast loops already.
#pragma once

namespace tandem::detail {

/// Random numbers and dropout in vector code.
void register_random_kernels();

}  // namespace tandem::detail
