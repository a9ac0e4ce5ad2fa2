// SPDX-License-Identifier: Apache-2.0
// Nets of MLPerf Tiny's shapes on an emulated board with a Cortex-M4 and nothing else: their codes
// are those of this processor, with DSP instructions and without; code and memory stay below bars.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tandem/base/files/private_folder.h"
#include "tandem/init.h"
#include "tests/edge/tiny_nets.h"

namespace tandem {
namespace {

// Prints the codes of the result, one a line.
constexpr const char* kNative = R"C(#include <stdio.h>
#include "codes.h"
static uint8_t y[NET_OUT];
int main(void) {
  NET_RUN(x, y);
  for (int i = 0; i < NET_OUT; ++i) printf("%d\n", y[i]);
  return 0;
}
)C";

// The same without an operating system, by semihosting; then the deepest byte of the stack that the
// call wrote, and the ticks that it took.
constexpr const char* kBoard = R"C(#include "codes.h"
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

constexpr const char* kMemory =
    R"L(MEMORY { flash : ORIGIN = 0, LENGTH = 4M ram : ORIGIN = 0x20000000, LENGTH = 1M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text* .rodata*) . = ALIGN(4); } > flash
  data_in_flash = .;
  .data : AT(data_in_flash) { data_begin = .; *(.data*) . = ALIGN(4); data_end = .; } > ram
  .bss : { bss_begin = .; *(.bss* COMMON) . = ALIGN(8); bss_end = .; stack_bottom = .; } > ram
  stack_top = ORIGIN(ram) + LENGTH(ram);
}
)L";

struct Workshop {
  std::string folder = PrivateFolder::temporary("cortex").path();
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

std::string codes_header(const TinyNet& n, size_t outputs) {
  const Tensor x = (rand(n.input) * 255).to(DType::u8);
  std::string s = fmt::format(
      "#include \"{0}.h\"\n#define NET_RUN {0}_run\n#define NET_OUT {1}\nstatic const uint8_t "
      "x[{2}] = {{",
      n.name, outputs, x.numel());
  for (const double v : x.to_vector<double>()) s += fmt::format("{},", v);
  return s + "};\n";
}

// The processor of the code; -mcpu=cortex-m3 is the same without DSP instructions.
struct Build {
  const char *processor, *level;
};
constexpr Build kBuilds[] = {{"cortex-m4", "-Os"}, {"cortex-m4", "-O2"}, {"cortex-m3", "-O2"}};

// Code, and constant and static data of the net's object file.
std::vector<size_t> sizes_of(const Workshop& w, const TinyNet& n) {
  std::istringstream table(w.output("arm-none-eabi-size -A -d net.o"));
  size_t text = 0, data = 0, bytes = 0;
  std::string section;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    if (!(words >> section >> bytes)) continue;
    if (section.starts_with(".text")) text += bytes;
    if (section.starts_with(".data") || section.starts_with(".bss")) data += bytes;
  }
  EXPECT_GT(text, 0u) << n.name;
  return {text, data};
}

void check_on_board(const Workshop& w, const TinyNet& n, const Build& b,
                    const std::string& native) {
  const std::string arm = fmt::format(
      "arm-none-eabi-gcc -std=c99 -mthumb -mcpu={} -mfloat-abi=soft -ffunction-sections {}",
      b.processor, b.level);
  const std::string what = fmt::format("{} {} {}", n.name, b.processor, b.level);
  const std::string printed = w.output(fmt::format(
      "{0} -Wall -Wextra -Werror -pedantic -c {1}.c -o net.o && {0} -w -ffreestanding "
      "-nostartfiles -T board.ld board.c net.o "
      "-Wl,--gc-sections -o board.elf && timeout 60 qemu-system-arm -M mps2-an386 -display none "
      "-monitor none -serial none "
      "-icount shift=0 -semihosting-config enable=on,target=native -kernel board.elf 2>&1",
      arm, n.name));
  ASSERT_TRUE(printed.starts_with(native)) << what << " prints\n" << printed.substr(0, 500);
  const bool has_dsp = b.processor == std::string("cortex-m4");
  EXPECT_EQ(w.output("arm-none-eabi-objdump -d net.o").find("smlad") != std::string::npos, has_dsp)
      << what;
  std::istringstream rest(printed.substr(native.size()));
  size_t stack = 0, ticks = 0;
  rest >> stack >> ticks;
  const std::vector<size_t> size = sizes_of(w, n);
  const size_t ports =
      static_cast<size_t>(n.input.numel().value()) + std::count(native.begin(), native.end(), '\n');
  const size_t memory = size[1] + stack + ports;
  EXPECT_GT(stack, 0u) << what;
  EXPECT_LT(size[0], n.most_code) << what;
  EXPECT_LT(memory, n.most_memory) << what;
  constexpr size_t kInstructionsOfTick = 40;  // at 25 MHz, where an instruction takes a nanosecond
  fmt::print(
      "{}: code {}, memory {} (static {}, stack {}, input and output {}), {:.2f} million "
      "instructions\n",
      what, size[0], memory, size[1], stack, ports,
      static_cast<double>(ticks * kInstructionsOfTick) / 1e6);
}

TEST(EdgeCortexM4, HasTheCodesOfThisProcessorWithinItsMemory) {
  for (const char* tool : {"arm-none-eabi-gcc", "qemu-system-arm"})
    if (std::system(fmt::format("command -v {} > /dev/null 2>&1", tool).c_str()) != 0)
      GTEST_SKIP() << tool << " is not installed (scripts/setup edge)";
  init();
  manual_seed(5);
  NoGradGuard no_grad;
  for (const TinyNet& n : kTinyNets) {
    const Workshop w;
    const edge::EdgeSource c = tiny_source(n);
    w.put((std::string(n.name) + ".c").c_str(), c.source);
    w.put((std::string(n.name) + ".h").c_str(), c.header);
    w.put("codes.h", codes_header(n, static_cast<size_t>(c.outputs[0].spec.shape.numel().value())));
    w.put("native.c", kNative);
    w.put("board.c", kBoard);
    w.put("board.ld", kMemory);
    const std::string native =
        w.output(fmt::format("cc -std=c99 -O1 native.c {}.c -o native && ./native", n.name));
    ASSERT_FALSE(native.empty()) << n.name;
    for (const Build& b : kBuilds) check_on_board(w, n, b, native);
  }
}

}  // namespace
}  // namespace tandem
