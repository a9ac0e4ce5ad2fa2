// SPDX-License-Identifier: Apache-2.0
// WebP pictures through the system's libwebp, which is opened when the first one is met: programs
// that never meet one need no such library.
#pragma once

#include "tandem/io/image.h"

namespace tandem::io {

/// True for the first bytes of a WebP file.
bool is_webp(std::string_view bytes);
/// u8 [c, h, w]. Throws Format; Unsupported where libwebp is not installed.
Tensor decode_webp(std::string_view bytes, const ReadImageOptions& options, std::string_view name);

}  // namespace tandem::io
