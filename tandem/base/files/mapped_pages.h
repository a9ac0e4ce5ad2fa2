// SPDX-License-Identifier: Apache-2.0
// Pages of mapped files count towards the process's memory once they have been read. Pages that
// will not be needed soon can be released: touching them reads them from the file again.
#pragma once

#include <cstddef>

#include "tandem/base/export.h"

namespace tandem {

/// Release the pages of [p, p + bytes) where they belong to a live MappedFile; other memory is
/// left alone.
TD_API void release_mapped(const void* p, size_t bytes);

/// Bytes of files read in passing that are kept in memory, over all files together.
inline constexpr size_t kPassedBytes = size_t{64} << 20;

/// Report that [p, p + bytes) of a MappedFile was read in passing, like the records of a large
/// file. After kPassedBytes, all pages of all files reported in this way are released, so reading
/// files of any size takes constant memory. Pointers into them stay valid.
TD_API void passed_mapped(const void* p, size_t bytes);

}  // namespace tandem
