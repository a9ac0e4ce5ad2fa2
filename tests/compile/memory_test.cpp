// SPDX-License-Identifier: Apache-2.0
// peak_bytes(), known before the first run, against what a run then allocates.
#include <fmt/format.h>

#include <functional>

#include "tandem/tensor/allocator.h"
#include "tests/compile/helpers.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

using namespace test;

// Run once, so that the kernels' caches are filled, then measure a fresh one.
template <class Net>
void measure(const char* name, const Tensor& x, const Tensor& y, size_t memory_limit = 0) {
  Net net;
  optim::AdamW opt(net.parameters(), {});
  auto step = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                      {.memory_limit = memory_limit});
  step(x, y);
  Ref<Executable> fresh = make_ref<Executable>(compiler::Program(step.executable()->program()));
  const auto said = static_cast<double>(fresh->peak_bytes());
  const int64_t held = allocator_stats().in_use;
  reset_allocator_peak();
  std::vector<Tensor> out = fresh->run(std::vector<Tensor>{x, y}, {});
  const auto measured = static_cast<double>(allocator_stats().peak - held);
  fmt::print("{:8} said {:>10} measured {:>10} bytes, ratio {:.3f}, lower bound {:>10}\n", name,
             said, measured, said / measured, fresh->lower_bound());
  EXPECT_LE(said, 1.05 * measured);
  EXPECT_GE(said, 0.95 * measured);
  // A later call only allocates its results.
  out.clear();
  const int64_t before = allocator_stats().in_use;
  out = fresh->run(std::vector<Tensor>{x, y}, {});
  EXPECT_LE(allocator_stats().in_use - before, 1 << 16);
}

// Sizes whose bytes are more than 64 bits can count: an error before anything is taken.
TEST(PeakBytes, ValuesBeyondAllMemoryAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  const std::function<Tensor(Tensor)> cases[] = {
      [](Tensor x) { return arange(0, kHuge).sum() + x; },
      [](Tensor x) { return full({2 * kHuge}, 2.0).cumsum(0).sum() + x; },
      [](Tensor x) { return x.expand({2 * kHuge}).contiguous().cumsum(0).sum(); },
      [](Tensor x) { return randn({2 * kHuge}).sum() + x; },
      [](Tensor x) {
        return cat({x.expand({kHuge}), x.expand({kHuge})}, 0).cumsum(0).sum();
      },
      [](Tensor x) {
        return pad(x, {0, 2 * kHuge}).cumsum(0).sum();
      },
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    const std::string said = thrown([&] { compile(cases[i])(ones({1})); });
    EXPECT_TRUE(said.find("more than this machine can address") != std::string::npos ||
                said.find("memory") != std::string::npos)
        << i << ": " << said;
  }
}

TEST(PeakBytes, Mlp) { measure<bench::Mlp>("mlp", image({64, 784}), words({64}, 10)); }
TEST(PeakBytes, Conv) { measure<bench::Conv>("conv", image({16, 1, 28, 28}), words({16}, 10)); }
TEST(PeakBytes, Gpt) { measure<bench::Gpt>("gpt", words({12, 64}, 65), words({12 * 64}, 65)); }
TEST(PeakBytes, GptLimited) {
  measure<bench::Gpt>("gpt tight", words({12, 64}, 65), words({12 * 64}, 65), 18 << 20);
}
TEST(PeakBytes, Lstm) { measure<bench::Lstm>("lstm", image({8, 20, 64}), words({8}, 10)); }
TEST(PeakBytes, ResNet) {
  measure<bench::ResNet18>("resnet", image({2, 3, 64, 64}), words({2}, 1000));
}

}  // namespace
}  // namespace tandem
