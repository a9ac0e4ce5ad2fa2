// SPDX-License-Identifier: Apache-2.0
// Pages of mapped files count as memory of the process once they were read. What will not be read
// again soon can be given back: it is read from the file anew when it is touched.
#pragma once

#include <cstddef>

#include "tandem/base/export.h"

namespace tandem {

/// Give back the pages behind [p, p + bytes) where they belong to a MappedFile that is alive;
/// other memory is left as it is.
TD_API void release_mapped(const void* p, size_t bytes);

/// Bytes of files read in passing that are kept in memory, of all files together.
inline constexpr size_t kPassedBytes = size_t{64} << 20;

/// Say that [p, p + bytes) of a MappedFile was read in passing, as records of a large file are.
/// After kPassedBytes all pages of all files that were named so are given back: reading files of
/// any size then holds constant memory. What points into them stays valid.
TD_API void passed_mapped(const void* p, size_t bytes);

}  // namespace tandem
