// SPDX-License-Identifier: Apache-2.0
// gpu::doctor(): which GPUs there are and what of their libraries was found, as readable text.
#pragma once

#include <string>

#include "tandem/base/export.h"

namespace tandem::gpu {

/// Lines "name: value": each library with version and path, or the exact reason why it is off; each
/// device of each driver. Opens the libraries.
TD_API std::string doctor();

}  // namespace tandem::gpu
