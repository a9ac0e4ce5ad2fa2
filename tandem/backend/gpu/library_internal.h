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

/// One of NVIDIA's libraries, from the system or from Python's packages: `resolve(library,
/// missing)` sets its functions. False, with report.problem, where it is off.
template <class Resolve>
bool open_functions(const char* name, const std::vector<std::string>& files, Resolve&& resolve,
                    LibraryReport& report) {
  const Library library = open_library(files, true);
  report = report_of(name, library);
  if (!library.handle) return false;
  std::string missing;
  resolve(library, missing);
  if (!missing.empty()) report.problem = library.path + " lacks " + missing;
  return missing.empty();
}

}  // namespace tandem::gpu
