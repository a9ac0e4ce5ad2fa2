// SPDX-License-Identifier: Apache-2.0
// Nets of MLPerf Tiny's shapes in int8: memory and code that they need as C, against bars.
#include <gtest/gtest.h>

#include "tandem/edge/footprint.h"
#include "tandem/init.h"
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

}  // namespace
}  // namespace tandem
