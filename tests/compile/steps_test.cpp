// SPDX-License-Identifier: Apache-2.0
// Whole training steps: compiled and eager give the same losses, parameters and statistics, step by
// step.
#include <gtest/gtest.h>

#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

// Train two copies in parallel; `tolerance` relative to the parameters' largest value, 0 for equal
// bits.
template <class Net, class Optim, class Options>
void compare_training(Tensor x, Tensor y, Options options, double tolerance, int steps = 4,
                      DType low = DType::f32) {
  manual_seed(3);
  Net eager, compiled = clone(eager);
  Optim opt_e(eager.parameters(), options), opt_c(compiled.parameters(), options);
  const auto train = [&](Net& net, Optim& opt, const Tensor& a, const Tensor& b) {
    if (low == DType::f32) return train_step(net, opt, a, b);
    AutocastGuard autocast(low);
    return train_step(net, opt, a, b);
  };
  auto step = compile([&](Tensor x, Tensor y) { return train(compiled, opt_c, x, y); });
  for (int i = 0; i < steps; ++i) {
    manual_seed(static_cast<uint64_t>(10 + i));
    Tensor a = train(eager, opt_e, x, y);
    manual_seed(static_cast<uint64_t>(10 + i));
    Tensor b = step(x, y);
    EXPECT_LE(distance(a, b), tolerance) << "loss of step " << i;
  }
  EXPECT_EQ(step.stats().traces, 1);
  auto want = eager.state_dict(), have = compiled.state_dict();
  for (auto& [name, value] : want) {
    if (tolerance == 0)
      EXPECT_TRUE(same_bits(value, have.at(name))) << name << " " << distance(value, have.at(name));
    else
      EXPECT_LE(distance(value, have.at(name)), tolerance) << name;
  }
}

TEST(CompiledStep, Mlp) {
  compare_training<bench::Mlp, optim::AdamW>(image({64, 784}), words({64}, 10),
                                             optim::AdamWOptions{}, 0);
}
TEST(CompiledStep, MlpSgd) {
  compare_training<bench::Mlp, optim::SGD>(image({64, 784}), words({64}, 10),
                                           optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, 0);
}
TEST(CompiledStep, Conv) {
  compare_training<bench::Conv, optim::AdamW>(image({8, 1, 28, 28}), words({8}, 10),
                                              optim::AdamWOptions{}, 0);
}
TEST(CompiledStep, Gpt) {
  compare_training<bench::Gpt, optim::AdamW>(words({2, 64}, 65), words({2 * 64}, 65),
                                             optim::AdamWOptions{}, 0);
}
// Matmuls of transposed matrices followed by the update, derivatives of gelu kept in f32.
TEST(CompiledStep, GptBf16) {
  compare_training<bench::Gpt, optim::AdamW>(words({2, 64}, 65), words({2 * 64}, 65),
                                             optim::AdamWOptions{}, 0, 3, DType::bf16);
}
TEST(CompiledStep, ConvBf16) {
  compare_training<bench::Conv, optim::AdamW>(image({8, 1, 28, 28}), words({8}, 10),
                                              optim::AdamWOptions{}, 0, 3, DType::bf16);
}
TEST(CompiledStep, Lstm) {
  compare_training<bench::Lstm, optim::AdamW>(image({4, 12, 64}), words({4}, 10),
                                              optim::AdamWOptions{}, 0);
}
TEST(CompiledStep, ResNet) {
  compare_training<bench::ResNet18, optim::AdamW>(image({2, 3, 32, 32}), words({2}, 1000),
                                                  optim::AdamWOptions{}, 0, 2);
}

}  // namespace
}  // namespace tandem
