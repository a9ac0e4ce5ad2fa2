// SPDX-License-Identifier: Apache-2.0
// The trainer's progress line under the tool's names.
#pragma once

#include "tandem/runs/progress.h"

namespace tandem::cli {
using runs::duration;
using runs::Progress;
}  // namespace tandem::cli
