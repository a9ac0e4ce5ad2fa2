// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Processors that the calling thread may run on, as its affinity says; at least 1.
TD_API int cpu_count();

}  // namespace tandem
