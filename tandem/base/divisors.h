// SPDX-License-Identifier: Apache-2.0
// Divisors of a size near one that does not divide it, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// What to take in place of `wanted`, which does not divide `total`: "Take num_heads = 2 or 5:
/// these divide 10." `name` is the option's. Of a total below 1, that it must be positive.
TD_API std::string divisor_hint(const char* name, int64_t wanted, int64_t total);

}  // namespace tandem
