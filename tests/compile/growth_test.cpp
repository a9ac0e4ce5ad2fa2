// SPDX-License-Identifier: Apache-2.0
// The time of the first compiled step grows with the number of instructions, not with its square.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tests/compile/helpers.h"
#include "tests/support/sanitized.h"

namespace tandem {
namespace {

using namespace test;

struct ResidualBlock : nn::Module {
  nn::LayerNorm norm{32};
  nn::Linear up{32, 64}, down{64, 32};
  ResidualBlock() { TD_REGISTER(norm, up, down); }
  Tensor forward(Tensor x) { return x + down(gelu(up(norm(x)))); }
};

// Seconds of processor time of the first step of training `blocks` blocks: forward, backward and
// optimizer, about 25 instructions a block.
double seconds_of_first_step(int blocks) {
  nn::Sequential net;
  for (int k = 0; k < blocks; ++k) net.append(ResidualBlock());
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  auto step = compile([&](Tensor x) {
    opt.zero_grad();
    Tensor loss = net(x).square().mean();
    loss.backward();
    opt.step();
    return loss;
  });
  const std::clock_t start = std::clock();
  step(ones({8, 32}));
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(CompileTime, GrowsWithTheNetNotWithItsSquare) {
  if (kSanitized) GTEST_SKIP() << "times of sanitized programs are others";
  seconds_of_first_step(2);  // fills the kernels' caches
  const double few =
      std::min({seconds_of_first_step(50), seconds_of_first_step(50), seconds_of_first_step(50)});
  const double many = std::min(seconds_of_first_step(400), seconds_of_first_step(400));
  fmt::print("first step of 50 blocks {:.3f} s, of 400 blocks {:.3f} s: {:.1f} times\n", few, many,
             many / few);
  EXPECT_LT(many, 20 * few);  // 8 is linear; a pass that compares all pairs of steps made it 60
}

}  // namespace
}  // namespace tandem
