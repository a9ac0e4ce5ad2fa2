// SPDX-License-Identifier: Apache-2.0
// On what kind of machine a run computes: what its bits depend on besides recipe and seed.
#pragma once

#include "tandem/io/json.h"

namespace tandem::train {

/// {"processor", "vectors", "threads"}.
io::Json machine_kind();
/// How `then` (of a checkpoint) differs from `now`; "" when it does not, or is not known.
std::string machine_difference(const io::Json& then, const io::Json& now);

}  // namespace tandem::train
