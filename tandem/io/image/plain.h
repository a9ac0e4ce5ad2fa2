// SPDX-License-Identifier: Apache-2.0
// Image files that need no library: uncompressed BMP (24 and 32 bits, or an 8-bit palette) and the
// binary forms of PNM (P5, P6, 8 bits). As u8 tensors [c, h, w], 1 or 3 channels.
#pragma once

#include <string_view>

#include "tandem/io/image.h"

namespace tandem::io {

/// Whether the bytes start such a file.
TD_API bool is_plain_image(std::string_view bytes);
/// Decode one. Throws Format, naming `name`, for a damaged file and for unsupported variants.
TD_API Tensor decode_plain_image(std::string_view bytes, const ReadImageOptions& options = {},
                                 std::string_view name = "image");

}  // namespace tandem::io
