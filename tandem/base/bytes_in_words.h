// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// "64 B", "12.5 MB": a number of bytes for messages, in the largest unit (of 1024 each) that
/// leaves at least two digits before the point.
TD_API std::string bytes_in_words(double bytes);

}  // namespace tandem
