// SPDX-License-Identifier: Apache-2.0
// Calls init() before the tests are registered: their tables may hold tensors.
#pragma once

#include "tandem/init.h"

namespace tandem {

inline const bool g_init = (init(), true);

}  // namespace tandem
