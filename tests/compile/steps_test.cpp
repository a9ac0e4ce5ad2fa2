// SPDX-License-Identifier: Apache-2.0
// Whole training steps: compiled and eager give the same losses, parameters and statistics, step by
// step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tandem/base/processor.h"
#include "tandem/compile/run/report.h"
#include "tests/compile/helpers.h"
#include "tests/support/sanitized.h"

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
TEST(CompiledStep, LstmBf16) {
  compare_training<bench::Lstm, optim::AdamW>(image({4, 12, 64}), words({4}, 10),
                                              optim::AdamWOptions{}, 0, 3, DType::bf16);
}
// Convolutions of all kinds, and views between them.
struct Blocks : nn::Module {
  nn::Conv2d first{3, 8, 3, nn::ConvOptions{.stride = {2}, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm1{8}, norm2{16};
  nn::Conv2d wide{8, 16, 3, nn::ConvOptions{.padding = 1, .groups = 8, .bias = false}};
  nn::ConvTranspose2d grow{16, 6, 2, nn::ConvTransposeOptions{.stride = {2}}};
  nn::Linear head{6, 10};
  Blocks() { TD_REGISTER(first, norm1, norm2, wide, grow, head); }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu6(norm2(wide(relu(norm1(first(x))))));
    const Tensor z = grow(y);
    return head(max_pool2d(z.transpose(2, 3) * 2.0, 2).mean({2, 3}) + z.mean({2, 3}));
  }
};
TEST(CompiledStep, ConvolutionsBf16) {
  compare_training<Blocks, optim::AdamW>(image({4, 3, 16, 16}), words({4}, 10),
                                         optim::AdamWOptions{}, 0, 3, DType::bf16);
}
TEST(CompiledStep, ConvolutionsF16) {
  compare_training<Blocks, optim::SGD>(image({4, 3, 16, 16}), words({4}, 10),
                                       optim::SGDOptions{.lr = 0.01}, 0, 3, DType::f16);
}

// Processors with fewer instructions have other kernels, in a process of its own each.
TEST(CompiledStep, OnOtherProcessors) {
  if (std::getenv("TANDEM_ISA")) GTEST_SKIP() << "TANDEM_ISA is set";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<const char*> limits = {"avx2"};
  if (!kSanitized) limits.insert(limits.end(), {"base", "avx512", "vnni"});
  for (const char* isa : limits) {
    const std::string command =
        fmt::format("TANDEM_ISA={} '{}' --gtest_filter='CompiledStep.*16' 2>&1", isa, self);
    std::string text;
    FILE* child = popen(command.c_str(), "r");
    ASSERT_TRUE(child);
    for (char part[512]; std::fgets(part, sizeof part, child);) text += part;
    EXPECT_EQ(pclose(child), 0) << isa << "\n" << text;
  }
}

// Where a processor does not multiply f16, programs compute in f32: no convolution reads 16-bit
// floats, and the report says so.
TEST(CompiledStep, ComputesInF32InPlaceOfF16) {
  if (cpu_features().f16) GTEST_SKIP() << "this processor multiplies f16";
  manual_seed(3);
  Blocks net;
  auto forward = compile([&](Tensor x) {
    const AutocastGuard autocast(DType::f16);
    return net.forward(x);
  });
  const Tensor x = image({4, 3, 16, 16});
  forward(x);
  const compiler::Program& p = forward.executable()->program();
  EXPECT_EQ(count_ops(forward.executable(), op::conv), 2);
  for (const compiler::Instr& i : p.instrs)
    if (i.op == &op::conv)
      EXPECT_EQ(p.values[i.in[0].value].spec.dtype, DType::f32) << p.to_string();
  EXPECT_NE(html_report(*forward.executable(), "net").find("compute in f32"), std::string::npos);
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
