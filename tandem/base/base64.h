// SPDX-License-Identifier: Apache-2.0
// Bytes as text, for files inside web pages and in JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// RFC 4648, with padding, in one line.
TD_API std::string base64(std::string_view bytes);
/// The bytes, or nothing where `text` is damaged; padding may be missing, and the characters
/// may be those for addresses (- and _).
TD_API std::optional<std::string> from_base64(std::string_view text);

}  // namespace tandem
