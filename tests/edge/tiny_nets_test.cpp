// SPDX-License-Identifier: Apache-2.0
// Nets of MLPerf Tiny's shapes in int8: memory and code that they need as C, against bars; and, on
// demand, how long a call takes with vectors for the sums of codes and without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tandem/edge/footprint.h"
#include "tandem/init.h"
#include "tests/edge/board.h"
#include "tests/edge/tiny_nets.h"

namespace tandem {
namespace {

TEST(EdgeTinyNets, FitTheirDevices) {
  init();
  NoGradGuard no_grad;
  for (const TinyNet& n : kTinyNets) {
    const edge::EdgeSource c = tiny_source(n);
    EXPECT_EQ(c.source.find("float"), std::string::npos) << n.name;
    EXPECT_LE(c.arena_bytes, n.most_memory) << n.name;
    const size_t code = edge::code_bytes(c, {.name = n.name});
    EXPECT_LE(code, n.most_code) << n.name;
    fmt::print("{}: arena {} (bound {}), weights {}, code {}\n", n.name, c.arena_bytes,
               c.lower_bound, c.weight_bytes, code);
  }
}

// Prints the least time of a call within 0.2 s, in microseconds, and a number that all codes of the
// result go into.
constexpr const char* kTimes = R"C(#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>
#include "codes.h"
static uint8_t y[NET_OUT];
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
int main(void) {
  double least = 1e30;
  for (double end = now() + 2e5; now() < end;) {
    const double start = now();
    NET_RUN(x, y);
    if (now() - start < least) least = now() - start;
  }
  uint32_t all = 0;
  for (int k = 0; k < NET_OUT; ++k) all = all * 31 + y[k];
  printf("%.1f %u\n", least, (unsigned)(all % 1000000u));
  return 0;
}
)C";
constexpr const char* kTimedModule = R"C(#include "codes.h"
static uint8_t y[NET_OUT];
__attribute__((export_name("run"))) void run(void) { NET_RUN(x, y); }
__attribute__((export_name("all"))) int all(void) {
  uint32_t sum = 0;
  for (int k = 0; k < NET_OUT; ++k) sum = sum * 31 + y[k];
  return (int)(sum % 1000000u);
}
)C";
constexpr const char* kTimesInNode = R"JS(const { readFileSync } = require('node:fs');
WebAssembly.instantiate(readFileSync(process.argv[2])).then(({ instance: { exports } }) => {
  let least = Infinity;
  for (const end = performance.now() + 500; performance.now() < end;) {
    const start = performance.now();
    for (let k = 0; k < 10; ++k) exports.run();
    least = Math.min(least, (performance.now() - start) / 10);
  }
  console.log((least * 1000).toFixed(1), exports.all());
});
)JS";

// How a program `out` is made of main.c and the net (two words that follow), and run.
struct Timed {
  const char *what, *make, *run;
};
constexpr Timed kTimed[] = {
    {"gcc -O2", "gcc -O2 main.c {} -o {}", "./{}"},
    {"gcc -O3", "gcc -O3 main.c {} -o {}", "./{}"},
    {"gcc -O3 -mavx2", "gcc -O3 -mavx2 main.c {} -o {}", "./{}"},
    {"gcc -O3 -march=native", "gcc -O3 -march=native main.c {} -o {}", "./{}"},
    {"clang -O2", "clang -O2 main.c {} -o {}", "./{}"},
    {"clang -O3", "clang -O3 main.c {} -o {}", "./{}"},
    {"clang -O3 -mavx2", "clang -O3 -mavx2 main.c {} -o {}", "./{}"},
    {"clang -O3 -march=native", "clang -O3 -march=native main.c {} -o {}", "./{}"},
    {"WebAssembly in Node",
     "clang --target=wasm32 -O3 -msimd128 -mbulk-memory -ffreestanding -nostdlib -Wl,--no-entry "
     "module.c {} -o {}",
     "node run.js ./{}"},
};

void print_times(const Workshop& w, const TinyNet& n, const Timed& t) {
  const std::string file = std::string(n.name) + ".c";
  const auto make = [&](const char* form, const char* out) {
    return w.output(fmt::format(fmt::runtime(t.make), file + form, out) + " && echo made");
  };
  if (make(" -DTDM_PLAIN", "plain").empty() || make("", "vectors").empty()) {
    fmt::print("{:<12} {:<24} cannot be built here\n", n.name, t.what);
    return;
  }
  double least[2] = {1e30, 1e30};
  int all[2] = {0, 1};
  for (int round = 0; round < 3; ++round)
    for (const int k : {0, 1}) {
      std::istringstream said(w.output(fmt::format(fmt::runtime(t.run), k ? "vectors" : "plain")));
      double time = 1e30;
      said >> time >> all[k];
      least[k] = std::min(least[k], time);
    }
  EXPECT_EQ(all[0], all[1]) << n.name << ' ' << t.what;
  fmt::print("{:<12} {:<24} {:9.1f} us plain {:9.1f} us {:6.2f} x\n", n.name, t.what, least[0],
             least[1], least[0] / least[1]);
}

// Not a test: prints the figures of docs/edge.md (--gtest_also_run_disabled_tests).
TEST(EdgeTinyNets, DISABLED_PrintsTheTimesOfForms) {
  init();
  manual_seed(5);
  NoGradGuard no_grad;
  std::vector<TinyNet> nets(std::begin(kTinyNets), std::end(kTinyNets));
  nets.insert(nets.end(), std::begin(kTimedNets), std::end(kTimedNets));
  for (const TinyNet& n : nets) {
    const Workshop w;
    const edge::EdgeSource c = tiny_source(n);
    w.put((std::string(n.name) + ".c").c_str(), c.source);
    w.put((std::string(n.name) + ".h").c_str(), c.header);
    w.put("codes.h", codes_header(n, c));
    w.put("main.c", kTimes);
    w.put("module.c", kTimedModule);
    w.put("run.js", kTimesInNode);
    for (const Timed& t : kTimed) print_times(w, n, t);
  }
}

}  // namespace
}  // namespace tandem
