// SPDX-License-Identifier: Apache-2.0
// Sums of products of codes in C, in all their forms: each compiler and processor that is installed
// computes the integers of loops of one product at a time, for all short lengths and for codes at
// the ends of their ranges, and reads nothing beside its operands.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tandem/edge/rows_internal.h"
#include "tests/edge/board.h"

namespace tandem {
namespace {

// wrong() counts the sums that differ. Operands end where their arrays end, at any alignment; most
// numbers are the least or the greatest.
constexpr const char* kChecks = R"C(
enum { most = 40, room = 1024 };
static int16_t x16[room];
static uint8_t x8[most];
static int8_t s8[most], w8[4 * most];
static uint32_t state = 1, seen;
static int32_t pick(int32_t low, int32_t high) {
  state = state * 1664525u + 1013904223u;
  const uint32_t r = state >> 8;
  return r % 3 == 0 ? low : r % 3 == 1 ? high : low + (int32_t)(r / 3 % (uint32_t)(high - low + 1));
}
static void fill(int32_t wide) {
  for (int32_t k = 0; k < room; ++k) x16[k] = (int16_t)(wide ? pick(-32768, 32767) : pick(-255, 255));
  for (int32_t k = 0; k < most; ++k) x8[k] = (uint8_t)pick(0, 255), s8[k] = (int8_t)pick(-128, 127);
  for (int32_t k = 0; k < 4 * most; ++k) w8[k] = (int8_t)pick(-128, 127);
}
static int32_t differs(int32_t want, int32_t got) {
  seen = seen * 31u + (uint32_t)got;
  return want != got;
}
static int32_t wrong_rows(int32_t n, int32_t rows) {
  const int16_t *x = x16 + room - 2 * n;
  const uint8_t *u = x8 + most - n;
  const int8_t *s = s8 + most - n, *w = w8 + 4 * most - rows * n;
  int32_t columns[8], bytes[8], with_sign[8], wrong = 0;
  tdm_dots_i16(x, w, n, rows, columns);
  tdm_dots_u8(u, w, n, rows, bytes);
  tdm_dots_i8(s, w, n, rows, with_sign);
  for (int32_t r = 0; r < rows; ++r) {
    int32_t want[4] = {0, 0, 0, 0};
    for (int32_t k = 0; k < n; ++k) {
      const int32_t v = w[r * n + k];
      want[0] += x[k] * v, want[1] += x[n + k] * v, want[2] += u[k] * v, want[3] += s[k] * v;
    }
    wrong += differs(want[0], columns[r]) + differs(want[1], columns[4 + r]);
    wrong += differs(want[2], bytes[r]) + differs(want[3], with_sign[r]);
  }
  return wrong;
}
static int32_t wrong_plane(const int32_t *s, int32_t many) {
  const int32_t last = (s[0] - 1) * s[2] + (s[1] - 1) * s[3];
  const int16_t *x = x16 + room - last - many;
  const int8_t *w = w8 + 4 * most - s[0] * s[1];
  int32_t sums[most + 1], wrong = 0;
  sums[many] = 12345;
  tdm_plane_i16(x, w, s, many, sums);
  for (int32_t k = 0; k < many; ++k) {
    int32_t want = 0;
    for (int32_t h = 0; h < s[0]; ++h)
      for (int32_t v = 0; v < s[1]; ++v) want += w[h * s[1] + v] * x[k + h * s[2] + v * s[3]];
    wrong += differs(want, sums[k]);
  }
  return wrong + (sums[many] != 12345);
}
static int32_t wrong(void) {
  static const int32_t shapes[][4] = {{1, 1, 9, 1}, {1, 3, 9, 1}, {3, 3, 7, 1}, {2, 2, 16, 2},
                                      {3, 3, 40, 3}, {5, 5, 20, 1}, {6, 6, 11, 1}};
  int32_t sum = 0;
  for (int32_t n = 1; n <= most; ++n)
    for (int32_t wide = 0; wide < 2; ++wide) {
      fill(wide);
      for (int32_t rows = 1; rows <= 4; ++rows) sum += wrong_rows(n, rows);
      for (uint32_t k = 0; k < sizeof shapes / sizeof *shapes; ++k) sum += wrong_plane(shapes[k], n);
    }
  return sum;
}
)C";

// What is printed: how many sums are wrong, and a number that all sums go into.
constexpr const char* kPrints = R"C(#include <stdio.h>
#include "sums.c"
int main(void) {
  const int32_t n = wrong();
  printf("%d %u\n", n, (unsigned)(seen % 1000000u));
  return 0;
}
)C";
constexpr const char* kCodesOfBoard = R"C(#include <stdint.h>
#define NET_OUT 4
#define NET_RUN run_sums
static const uint8_t x[4] = {0, 0, 0, 0};
void run_sums(const uint8_t *in, uint8_t *y);
)C";
constexpr const char* kNetOfBoard = R"C(#include "sums.c"
void run_sums(const uint8_t *in, uint8_t *y);
void run_sums(const uint8_t *in, uint8_t *y) {
  const int32_t n = wrong() + in[0];
  y[0] = (uint8_t)(n > 255 ? 255 : n);
  for (int k = 1; k < 4; ++k) y[k] = (uint8_t)(seen % 1000000u / (k == 1 ? 10000u : k == 2 ? 100u : 1u) % 100u);
}
)C";
constexpr const char* kInNode = R"JS(const { readFileSync } = require('node:fs');
WebAssembly.instantiate(readFileSync('sums.wasm')).then(({ instance }) =>
  console.log(instance.exports.run(), instance.exports.all()));
)JS";
constexpr const char* kModule = R"C(#include "sums.c"
__attribute__((export_name("run"))) int run(void) { return wrong(); }
__attribute__((export_name("all"))) int all(void) { return (int)(seen % 1000000u); }
)C";

// How the program is compiled and run here or by QEMU's user mode. `feature`: of this processor, as
// Linux names it.
struct Form {
  const char *compiler, *flags, *runner = "", *feature = "";
};
constexpr Form kForms[] = {
    {"cc", "-O2 -DTDM_PLAIN"},
    {"cc", "-O2"},
    {"cc", "-Os"},
    {"cc", "-O3 -msse4.1", "", "sse4_1"},
    {"cc", "-O3 -mavx2", "", "avx2"},
    {"cc", "-O3 -mavx2 -mavxvnni", "", "avx_vnni"},
    {"cc", "-O3 -mavx512vl -mavx512vnni", "", "avx512_vnni"},
    {"cc", "-O1 -mavx2 -fsanitize=address,undefined -fno-sanitize-recover", "", "avx2"},
    {"clang", "-O2"},
    {"clang", "-O3 -mavx2", "", "avx2"},
    {"clang", "-O3 -mavx512vl -mavx512vnni", "", "avx512_vnni"},
    {"i686-linux-gnu-gcc", "-O2 -static -msse2", "qemu-i386"},
    {"aarch64-linux-gnu-gcc", "-O2 -static", "qemu-aarch64"},
    {"aarch64-linux-gnu-gcc", "-O2 -static -march=armv8.2-a+dotprod", "qemu-aarch64 -cpu max"},
    {"aarch64-linux-gnu-gcc", "-O2 -static -march=armv8.2-a+i8mm", "qemu-aarch64 -cpu max"},
    {"arm-linux-gnueabihf-gcc", "-O2 -static -mfpu=neon", "qemu-arm"},
    {"arm-linux-gnueabihf-gcc", "-O2 -static", "qemu-arm"},
    {"riscv64-linux-gnu-gcc", "-O2 -static", "qemu-riscv64"},
    {"s390x-linux-gnu-gcc", "-O2 -static", "qemu-s390x"},
};

bool finds(const std::string& program) {
  const std::string name = program.substr(0, program.find(' '));
  return name.empty() || std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}
bool has_feature(const std::string& name) {
  return name.empty() ||
         std::system(("grep -qw " + name + " /proc/cpuinfo 2> /dev/null").c_str()) == 0;
}

std::string all_sums() {
  std::string calls;
  for (const char* f :
       {edge::kDotsOfTaps, edge::kDotsOfBytes, edge::kDotsOfSigned, edge::kPlaneOfTaps})
    calls += std::string(f) + "(";
  return "#include <stdint.h>\n" + edge::functions_for(calls) + kChecks;
}

TEST(EdgeCodeSums, AllFormsHaveTheSameIntegers) {
  const Workshop w;
  w.put("sums.c", all_sums());
  w.put("main.c", kPrints);
  std::string want, missing;
  for (const Form& f : kForms) {
    if (!finds(f.compiler) || !finds(f.runner) || !has_feature(f.feature)) {
      missing += fmt::format("\n  {} {} {}", f.compiler, f.flags, f.runner);
      continue;
    }
    const std::string said = w.output(
        fmt::format("{} -std=c99 -Wall -Wextra -Werror -pedantic {} main.c -o run && {} ./run",
                    f.compiler, f.flags, f.runner));
    EXPECT_TRUE(said.starts_with("0 ")) << f.compiler << ' ' << f.flags << ": " << said;
    if (want.empty()) want = said;
    EXPECT_EQ(said, want) << f.compiler << ' ' << f.flags;
  }
  if (!missing.empty()) GTEST_SKIP() << "the other forms agree; not found:" << missing;
}

TEST(EdgeCodeSums, WebAssemblyHasThem) {
  if (!finds("clang") || !finds("wasm-ld") || !finds("node"))
    GTEST_SKIP() << "needs clang, wasm-ld and node";
  const Workshop w;
  w.put("sums.c", all_sums());
  w.put("main.c", kPrints);
  w.put("module.c", kModule);
  w.put("run.js", kInNode);
  const std::string want = w.output("cc -std=c99 -O1 main.c -o run && ./run");
  EXPECT_EQ(w.output("clang --target=wasm32 -std=c99 -Wall -Wextra -Werror -pedantic -O3 -msimd128 "
                     "-mbulk-memory -ffreestanding -nostdlib -Wl,--no-entry module.c -o sums.wasm "
                     "&& node run.js"),
            want);
}

TEST(EdgeCodeSums, ProcessorsOfARMHaveThem) {
  for (const char* tool : {"arm-none-eabi-gcc", "qemu-system-arm"})
    if (!finds(tool)) GTEST_SKIP() << tool << " is not installed (scripts/setup edge)";
  const Workshop w;
  w.put("sums.c", all_sums());
  w.put("main.c", kPrints);
  w.put("codes.h", kCodesOfBoard);
  w.put("net.c", kNetOfBoard);
  w.put("board.c", kBoard);
  std::istringstream native(w.output("cc -std=c99 -O1 main.c -o run && ./run"));
  int wrong = 1, all = 0;
  native >> wrong >> all;
  const std::string want = fmt::format("0\n{}\n{}\n{}\n", all / 10000, all / 100 % 100, all % 100);
  for (const auto& [processor, level] : {std::pair{kCortexM3, "-O2"},
                                         {kCortexM4, "-O2"},
                                         {kCortexM4, "-Os"},
                                         {kCortexM55, "-O2"},
                                         {kCortexM55, "-Os"}}) {
    w.put("board.ld", std::string(processor.memory) + kSections);
    const std::string said =
        w.output(fmt::format("{} -Wall -Wextra -Werror -pedantic -c net.c -o net.o && {}",
                             arm_compiler(processor, level), on_board(processor, "net.o")));
    EXPECT_TRUE(said.starts_with(want)) << processor.name << ' ' << level << ":\n"
                                        << said.substr(0, 300);
  }
}

}  // namespace
}  // namespace tandem
