// SPDX-License-Identifier: Apache-2.0
// Libraries that are opened at run time: where they are looked for, and why one is off.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

/// A library that stays open until the process ends, or why there is none.
struct Library {
  void* handle = nullptr;
  std::string path;     ///< of the file
  std::string problem;  ///< what was looked for and where, or the loader's words
};

/// The first of `names` that can be opened: in the folders of $TANDEM_GPU_LIBRARIES (separated by
/// colons), where the system's loader looks, and with `wheels` in nvidia/*/lib of Python's
/// packages.
Library open_library(const std::vector<std::string>& names, bool wheels);

/// Of a library as it was found, before its functions are.
LibraryReport report_of(const char* name, const Library& library);

/// Set the function pointer at `place`; the name of one that the library lacks goes into `missing`,
/// after a comma.
void resolve_symbol(const Library& library, const char* name, void* place, std::string& missing);

}  // namespace tandem::gpu
