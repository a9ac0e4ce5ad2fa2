// SPDX-License-Identifier: Apache-2.0
// Nets of MLPerf Tiny's shapes on emulated boards with a Cortex-M4 or M55 and nothing else: their
// codes are those of this processor, with DSP instructions, with vectors (Helium) and without;
// code and memory stay below bars.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tandem/init.h"
#include "tests/edge/board.h"
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

// A processor, how its code is built, and an instruction that marks its form of the sums.
struct Build {
  const Cortex& processor;
  const char *level, *instruction;
};
constexpr Build kBuilds[] = {{kCortexM4, "-Os", "smlad"},
                             {kCortexM4, "-O2", "smlad"},
                             {kCortexM3, "-O2", ""},
                             {kCortexM55, "-Os", "vmlava.s16"},
                             {kCortexM55, "-O2", "vmlava.s16"},
                             {kCortexM55, "-O2 -DTDM_PLAIN", ""}};

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
  const std::string what = fmt::format("{} {} {}", n.name, b.processor.name, b.level);
  w.put("board.ld", std::string(b.processor.memory) + kSections);
  const std::string printed = w.output(
      fmt::format("{} -Wall -Wextra -Werror -pedantic -c {}.c -o net.o && {}",
                  arm_compiler(b.processor, b.level), n.name, on_board(b.processor, "net.o")));
  ASSERT_TRUE(printed.starts_with(native)) << what << " prints\n" << printed.substr(0, 500);
  const std::string code = w.output("arm-none-eabi-objdump -m armv8.1-m.main -d net.o");
  for (const char* instruction : {"smlad", "vmlava.s16"})
    EXPECT_EQ(code.find(instruction) != std::string::npos,
              instruction == std::string(b.instruction))
        << what << ' ' << instruction;
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
  fmt::print(
      "{}: code {}, memory {} (static {}, stack {}, input and output {}), {:.2f} million "
      "instructions\n",
      what, size[0], memory, size[1], stack, ports,
      static_cast<double>(ticks) * b.processor.nanoseconds / 1e6);
}

TEST(EdgeCortex, HasTheCodesOfThisProcessorWithinItsMemory) {
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
    w.put("codes.h", codes_header(n, c));
    w.put("native.c", kNative);
    w.put("board.c", kBoard);
    const std::string native =
        w.output(fmt::format("cc -std=c99 -O1 native.c {}.c -o native && ./native", n.name));
    ASSERT_FALSE(native.empty()) << n.name;
    for (const Build& b : kBuilds) check_on_board(w, n, b, native);
  }
}

}  // namespace
}  // namespace tandem
