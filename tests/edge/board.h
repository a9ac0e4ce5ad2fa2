// SPDX-License-Identifier: Apache-2.0
// Boards with a processor of ARM's and no operating system, which QEMU emulates: a program that
// calls a net and prints its codes, and how it is built and run.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tandem/base/files/file.h"
#include "tandem/base/files/private_folder.h"

namespace tandem {

// Prints the codes of a net's result by semihosting, one a line; then the deepest byte of the stack
// that the call wrote, and the ticks that it took.
inline constexpr const char* kBoard = R"C(#include "codes.h"
extern uint32_t stack_bottom[], stack_top[], data_in_flash[], data_begin[], data_end[], bss_begin[], bss_end[];
static uint8_t x_in_ram[sizeof x], y[NET_OUT];

static void host(uint32_t call, const void *with) {
  register uint32_t r0 __asm__("r0") = call;
  register const void *r1 __asm__("r1") = with;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
static void print(uint32_t v) {
  char text[12], *at = text + sizeof text;
  *--at = 0;
  *--at = '\n';
  do *--at = (char)('0' + v % 10);
  while (v /= 10);
  host(4, at);
}
static volatile uint32_t *const tick = (volatile uint32_t *)0xE000E010; /* SysTick: control, reload, value */

void start(void);
void start(void) {
  *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* vectors may be used */
  uint32_t *from = data_in_flash, *bottom = stack_bottom;
  for (uint32_t *to = data_begin; to < data_end;) *to++ = *from++;
  for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
  for (uint32_t k = 0; k < sizeof x; ++k) x_in_ram[k] = x[k];
  uint32_t *const here = (uint32_t *)__builtin_frame_address(0) - 64;
  while (bottom < here) *bottom++ = 0xA5A5A5A5u;
  tick[1] = 0xFFFFFF;
  tick[2] = 0;
  tick[0] = 5;
  NET_RUN(x_in_ram, y);
  const uint32_t ticks = 0xFFFFFF - tick[2];
  for (bottom = stack_bottom; *bottom == 0xA5A5A5A5u;) ++bottom;
  for (uint32_t k = 0; k < NET_OUT; ++k) print(y[k]);
  print((uint32_t)((uint8_t *)__builtin_frame_address(0) - (uint8_t *)bottom));
  print(ticks);
  host(0x18, (const void *)0x20026); /* exit */
  for (;;) {
  }
}
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {stack_top, (const void *)start};
)C";

// Where a linker puts what lies in flash and in memory.
inline constexpr const char* kSections =
    R"L(SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text* .rodata*) . = ALIGN(4); } > flash
  data_in_flash = .;
  .data : AT(data_in_flash) { data_begin = .; *(.data*) . = ALIGN(4); data_end = .; } > ram
  .bss : { bss_begin = .; *(.bss* COMMON) . = ALIGN(8); bss_end = .; stack_bottom = .; } > ram
  stack_top = ORIGIN(ram) + LENGTH(ram);
}
)L";

/// A processor on a board that QEMU has. The SysTick counts `nanoseconds` a tick, where an
/// instruction takes one.
struct Cortex {
  const char *name, *floats, *machine, *memory;
  double nanoseconds;
};
inline constexpr const char* kSmallBoard =
    "MEMORY { flash : ORIGIN = 0, LENGTH = 4M ram : ORIGIN = 0x20000000, LENGTH = 1M }\n";
inline constexpr Cortex kCortexM4 = {"cortex-m4", "soft", "mps2-an386", kSmallBoard, 40};
/// The same without DSP instructions.
inline constexpr Cortex kCortexM3 = {"cortex-m3", "soft", "mps2-an386", kSmallBoard, 40};
/// With Helium.
inline constexpr Cortex kCortexM55 = {"cortex-m55", "softfp", "mps3-an547",
                                      "MEMORY { flash : ORIGIN = 0x10000000, LENGTH = 512K ram "
                                      ": ORIGIN = 0x30000000, LENGTH = 512K }\n",
                                      31.25};

inline std::string arm_compiler(const Cortex& p, const std::string& flags) {
  return fmt::format(
      "arm-none-eabi-gcc -std=c99 -mthumb -mcpu={} -mfloat-abi={} -ffunction-sections {}", p.name,
      p.floats, flags);
}
/// Links board.c and `object` and runs them; files board.c, codes.h and board.ld lie in the folder.
inline std::string on_board(const Cortex& p, const std::string& object) {
  return fmt::format(
      "{} -mgeneral-regs-only -w -ffreestanding -nostartfiles -T board.ld board.c {} "
      "-Wl,--gc-sections -o board.elf && timeout 60 qemu-system-arm -M {} -display none "
      "-monitor none -serial none -icount shift=0 -semihosting-config enable=on,target=native "
      "-kernel board.elf 2>&1",
      arm_compiler(p, "-O2"), object, p.machine);
}

struct Workshop {
  std::string folder = PrivateFolder::temporary("board").path();
  ~Workshop() { std::filesystem::remove_all(folder); }
  void put(const char* name, const std::string& text) const {
    write_file(folder + "/" + name, text);
  }
  // What the line prints; nothing where it fails.
  std::string output(const std::string& line) const {
    const std::string all = fmt::format("cd {} && {{ {}; }} > printed.txt", folder, line);
    return std::system(all.c_str()) == 0 ? read_file(folder + "/printed.txt") : "";
  }
};

}  // namespace tandem
