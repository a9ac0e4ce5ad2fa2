// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720 appendix B.4): checksums of checkpoints and of TFRecord framing.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem {

/// The checksum of `bytes`, continuing from `before`, the checksum of the bytes that precede them.
TD_API uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace tandem
