// SPDX-License-Identifier: Apache-2.0
// Bytes as text, for files inside web pages.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// RFC 4648, with padding, in one line.
TD_API std::string base64(std::string_view bytes);

}  // namespace tandem
