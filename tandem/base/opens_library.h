// SPDX-License-Identifier: Apache-2.0
// dlopen(TD_OPENS_LIBRARY("libwebp.so.7"), ...): the same name, and a note in the program's own
// file that such a library is opened at run time, as the linker says it of those that are needed
// from the start. Packagers read it, and so does `tandem deploy`.
// https://uapi-group.org/specifications/specs/elf_dlopen_metadata/
#pragma once

/// In a function; `file` is a literal.
#if defined(__ELF__)
#define TD_OPENS_LIBRARY(file)                           \
  (__extension__({                                       \
    __asm__ volatile(                                    \
        ".pushsection .note.dlopen,\"a\",%note\n"        \
        ".balign 4\n"                                    \
        ".long 4, 2f - 1f, 0x407c0c0a\n"                 \
        ".asciz \"FDO\"\n"                               \
        "1: .asciz \"[{\\\"soname\\\":[\\\"" file        \
        "\\\"],\\\"priority\\\":\\\"suggested\\\"}]\"\n" \
        "2: .balign 4\n"                                 \
        ".popsection\n");                                \
    file;                                                \
  }))
#else
#define TD_OPENS_LIBRARY(file) file
#endif
