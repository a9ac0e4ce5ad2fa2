// SPDX-License-Identifier: Apache-2.0
// What a model written as C needs on a device. `tandem inspect --edge` prints it.
#pragma once

#include "tandem/edge/edge.h"

namespace tandem::edge {

/// Bytes of machine code of the C file, compiled for this processor by cc, gcc or clang with -Os;
/// 0 where there is no compiler. Throws Value with the compiler's words where it fails.
TD_API size_t code_bytes(const EdgeSource& net, const EdgeOptions& options = {});

}  // namespace tandem::edge
