// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): names and verifies what is kept on disk, such as compiled loops.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// The 32 bytes of the hash.
TD_API std::array<unsigned char, 32> sha256(std::string_view bytes);
/// The same as 64 hexadecimal digits.
TD_API std::string sha256_hex(std::string_view bytes);

}  // namespace tandem
