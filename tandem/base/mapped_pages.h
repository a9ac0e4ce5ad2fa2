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

}  // namespace tandem
