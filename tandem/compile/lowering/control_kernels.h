// SPDX-License-Identifier: Apache-2.0
// Kernels of cond, while_loop and scan for Executables: bodies are Executables of their own, made
// once when the program around them is lowered.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Called by init().
TD_API void register_control_kernels();

}  // namespace tandem
