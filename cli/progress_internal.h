// SPDX-License-Identifier: Apache-2.0
// The trainer's progress line under the tool's names.
#pragma once

#include "tandem/train/progress.h"

namespace tandem::cli {
using train::duration;
using train::Progress;
}  // namespace tandem::cli
