// SPDX-License-Identifier: Apache-2.0
// The CPU backend: kernels for the op rows, from oneDNN where it is built in, otherwise its own. A
// row without a kernel runs its reference.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Register the kernels for this machine's processor. init() calls it once, after the ops.
TD_API void register_cpu_backend();

}  // namespace tandem
