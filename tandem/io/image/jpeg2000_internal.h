// SPDX-License-Identifier: Apache-2.0
// The header of a JPEG 2000 file, checked before a decoder sees it.
#pragma once

#include "tandem/io/image.h"

namespace tandem::io {

/// The most memory that decoding takes. Throws Format for a truncated file, and for one that claims
/// more pixels, tiles or precincts than are allowed or than its bytes can hold: OpenJPEG reserves
/// memory by those numbers before the caller can check them.
uint64_t check_jpeg2000_head(std::string_view bytes, const ReadImageOptions& options,
                             std::string_view name);

}  // namespace tandem::io
