// SPDX-License-Identifier: Apache-2.0
// init(): the one call that fills the op table and turns on the backends that are built in.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Register all ops and every backend of this build. Call it before the first op; calling it
/// again, from any thread, does nothing.
TD_API void init();

}  // namespace tandem
