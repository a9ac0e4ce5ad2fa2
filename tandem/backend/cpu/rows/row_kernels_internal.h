// SPDX-License-Identifier: Apache-2.0
// Kernels of softmax and norms: register_cpu_backend() calls this. Not installed.
#pragma once

namespace tandem::detail {

void register_row_kernels();

}  // namespace tandem::detail
