// SPDX-License-Identifier: Apache-2.0
// Names of functions by the symbol table of their file: a program does not export its own, so
// dladdr() does not know them.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::distributed {

struct FunctionAt {
  std::string name;     ///< mangled; "": unknown
  uint64_t offset = 0;  ///< of the address, from the function's begin
};
/// The function of the ELF file `path`, loaded at `base`, that holds the address `at` of this
/// process. Nothing where the file cannot be read, is of another kind or stripped.
FunctionAt function_at(const std::string& path, uint64_t base, uint64_t at);

}  // namespace tandem::distributed
