// SPDX-License-Identifier: Apache-2.0
// data/hardware.json and data/prices.json as they are, put into the read-only section by the
// assembler. The paths are those at build time; nothing of them stays in the binary.
__asm__(
    ".section .rodata\n"
    "tandem_hardware_begin:\n"
    ".incbin \"" TANDEM_HARDWARE_FILE
    "\"\n"
    ".byte 0\n"
    "tandem_prices_begin:\n"
    ".incbin \"" TANDEM_PRICES_FILE
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const char tandem_hardware_begin[] __attribute__((visibility("hidden")));
extern "C" const char tandem_prices_begin[] __attribute__((visibility("hidden")));

namespace tandem::plan {

const char* hardware_text() { return tandem_hardware_begin; }
const char* prices_text() { return tandem_prices_begin; }

}  // namespace tandem::plan
