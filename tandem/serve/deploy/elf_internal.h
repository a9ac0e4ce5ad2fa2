// SPDX-License-Identifier: Apache-2.0
// What a program needs of the system it runs on, read from its own file: its loader, the libraries
// it is linked with, and those that it says it opens at run time (base/opens_library.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::serve {

struct ElfFacts {
  std::string interpreter;          ///< the loader's path; "" of a library
  std::vector<std::string> needed;  ///< by the linker
  std::vector<std::string> opened;  ///< at run time, where they are installed
  std::vector<std::string> search;  ///< where it looks first; may begin with $ORIGIN
  int machine = 0;                  ///< as ELF numbers them
};
/// Throws Io, and Format for what is not a 64-bit ELF file of this byte order or is damaged.
TD_API ElfFacts read_elf(const std::string& path);

struct ProgramFiles {
  std::string program;      ///< its path
  std::string interpreter;  ///< its loader's path, by which the system starts it
  /// The libraries by the name that they are asked for, with their paths, sorted.
  std::vector<std::pair<std::string, std::string>> libraries;
  /// Where the loader looks without being told: the folder of the C library.
  std::string folder;
  std::vector<std::string> missing;  ///< opened at run time and not installed here
};
/// Everything that `program` needs, found as its loader would. Throws Io naming a library that is
/// needed and not there.
TD_API ProgramFiles files_of_program(const std::string& program);

}  // namespace tandem::serve
