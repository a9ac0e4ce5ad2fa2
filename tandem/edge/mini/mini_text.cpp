// SPDX-License-Identifier: Apache-2.0
// Sources of libtandem-mini as they are, put into the read-only section by the assembler. The
// macros are their paths at build time, which do not remain in the binary.
#include "tandem/edge/mini/mini_text_internal.h"

#define TD_TEXT(name, file)          \
  __asm__(".section .rodata\n" #name \
          ":\n"                      \
          ".incbin \"" file          \
          "\"\n"                     \
          ".byte 0\n"                \
          ".text\n");                \
  extern "C" const char name[] __attribute__((visibility("hidden")));

TD_TEXT(tandem_text_of_header, TANDEM_C_HEADER_FILE)
TD_TEXT(tandem_text_of_checks, TANDEM_C_CHECKS_FILE)
TD_TEXT(tandem_text_of_mini, TANDEM_C_MINI_FILE)

namespace tandem::edge {

const char* c_header_text() { return tandem_text_of_header; }
const char* mini_checks_text() { return tandem_text_of_checks; }
const char* mini_source_text() { return tandem_text_of_mini; }

}  // namespace tandem::edge
