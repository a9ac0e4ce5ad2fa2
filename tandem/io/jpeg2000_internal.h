// SPDX-License-Identifier: Apache-2.0
// The head of a JPEG 2000 file, read before a decoder sees it.
#pragma once

#include "tandem/io/image.h"

namespace tandem::io {

/// Throws Format for a file that is cut, and for one that claims more pixels, tiles or precincts
/// than are allowed or than its bytes can hold: OpenJPEG reserves memory by what is written there
/// before it could be asked about it.
void check_jpeg2000_head(std::string_view bytes, const ReadImageOptions& options,
                         std::string_view name);

}  // namespace tandem::io
