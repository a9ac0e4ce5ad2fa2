// SPDX-License-Identifier: Apache-2.0
// Dry runs: the same code without numbers. Their predictions are compared with real runs.
#include "tandem/graph/dry_run.h"
#include "tandem/tandem.h"
#include "tandem/tensor/allocator.h"
#include "tests/plan/plan_helper.h"

namespace tandem {
namespace {

struct Net : nn::Module {
  nn::Conv2d a{3, 32, 3}, b{32, 64, 3, {.stride = 2}};
  nn::BatchNorm2d norm{32};
  nn::Linear head{64, 10};
  Net() { TD_REGISTER(a, b, norm, head); }
  Tensor forward(Tensor x) {
    x = relu(norm(a(x)));
    x = relu(b(x)).mean({2, 3});
    return head(x);
  }
};

// Three training steps of a small net on n images.
void train(bool compiled, int64_t n) {
  Net net;
  optim::AdamW opt(net.parameters(), {});
  Tensor x = randn({n, 3, 64, 64}), y = zeros({n}, DType::i64);
  const auto step = [&](const Tensor& in, const Tensor& target) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(in), target);
    loss.backward();
    opt.step();
    return loss;
  };
  auto fn = compile(step);
  for (int i = 0; i < 3; ++i) compiled ? fn(x, y) : step(x, y);
}

int64_t dry_peak(bool compiled, int64_t n) {
  DryRunGuard dry;
  train(compiled, n);
  return dry.memory().peak();
}

int64_t real_peak(bool compiled, int64_t n) {
  trim_allocator();
  const int64_t before = allocator_stats().in_use;
  reset_allocator_peak();
  train(compiled, n);
  return allocator_stats().peak - before;
}

TEST(DryRun, PeakOfATrainingStep) {
  init();
  for (bool compiled : {false, true})
    for (int64_t n : {16, 48}) {
      const auto real = static_cast<double>(real_peak(compiled, n));
      const auto dry = static_cast<double>(dry_peak(compiled, n));
      EXPECT_NEAR(dry / real, 1, 0.03)
          << (compiled ? "compiled " : "eager ") << n << ": " << dry << " of " << real;
    }
}

TEST(DryRun, NothingIsAllocated) {
  init();
  const int64_t before = allocator_stats().in_use;
  DryRunGuard dry;
  Tensor a = randn({100000, 100000}), b = matmul(a, a);
  EXPECT_EQ(b.shape(), Shape(100000, 100000));
  EXPECT_LT(allocator_stats().in_use - before, 1 << 20);
  EXPECT_GE(dry.memory().in_use(), int64_t{80000000000});
  a = b = Tensor();
  EXPECT_LT(dry.memory().in_use(), 1 << 20);
}

TEST(DryRun, SmallNumbersAreComputed) {
  init();
  const GeneratorState before = generator_state();
  {
    DryRunGuard dry;
    EXPECT_EQ((arange(10) * 2).sum().item<int64_t>(), 90);
    EXPECT_EQ(to_string(matmul(ones({2000, 2000}), ones({2000, 3})).shape()), "[2000, 3]");
    uniform({4096, 4096}, 0, 1);
  }
  EXPECT_EQ(generator_state().offset, before.offset);
}

TEST(DryRun, ReadingFails) {
  init();
  DryRunGuard dry;
  Tensor x = randn({100, 100});
  EXPECT_ERROR(Unsupported, "a dry run has shapes and no values", x.sum().item<float>());
  EXPECT_ERROR(Unsupported, "a dry run has shapes and no values", x.to_vector<float>());
  EXPECT_ERROR(Unsupported, "a dry run has shapes and no values", x.data<float>());
  EXPECT_ERROR(Unsupported, "a dry run has shapes and no values", (void)static_cast<bool>(x.sum()));
  StateDict file;
  file["x"] = x;
  EXPECT_ERROR(Unsupported, "a dry run has shapes and no values", save(file, "/dev/null"));
  EXPECT_ERROR(Unsupported, "a dry run inside a dry run", DryRunGuard());
  EXPECT_ERROR(Shape, "100", matmul(x, randn({3, 3})));
}

}  // namespace
}  // namespace tandem
