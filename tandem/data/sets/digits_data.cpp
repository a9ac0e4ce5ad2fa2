// SPDX-License-Identifier: Apache-2.0
// The embedded digits: data/digits.csv.gz unchanged, put into the read-only section by the
// assembler. TANDEM_DIGITS_FILE is the path at build time; it does not remain in the binary.
#include <cstddef>

__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    "tandem_digits_begin:\n"
    ".incbin \"" TANDEM_DIGITS_FILE
    "\"\n"
    "tandem_digits_end:\n"
    ".byte 0\n"
    ".text\n");
extern "C" const unsigned char tandem_digits_begin[] __attribute__((visibility("hidden")));
extern "C" const unsigned char tandem_digits_end[] __attribute__((visibility("hidden")));

namespace tandem::data {

const unsigned char* digits_bytes() { return tandem_digits_begin; }
size_t digits_size() { return static_cast<size_t>(tandem_digits_end - tandem_digits_begin); }

}  // namespace tandem::data
