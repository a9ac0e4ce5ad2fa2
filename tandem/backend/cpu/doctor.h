// SPDX-License-Identifier: Apache-2.0
// doctor(): what this build found on this machine, as readable text.
#pragma once

#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// Lines "name: value": processor and its vector units, oneDNN or why it is off, compiled loops,
/// threads, memory, and how many rows use own kernels, a library or their reference. Call init()
/// first. GPUs: gpu::doctor().
TD_API std::string doctor();

}  // namespace tandem
