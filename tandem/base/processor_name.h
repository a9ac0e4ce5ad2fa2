// SPDX-License-Identifier: Apache-2.0
// Which processor this is: for people, and as a key of what is kept for one kind of it.
#pragma once

#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// "AMD EPYC 9654 96-Core Processor"; "unknown" where the system does not say.
TD_API std::string processor_name();
/// Model, family, stepping and instruction sets: processors of one text run the same code equally
/// well.
TD_API std::string processor_identity();

}  // namespace tandem
