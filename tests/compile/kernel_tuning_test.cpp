// SPDX-License-Identifier: Apache-2.0
// Kernels chosen by their time: which of them, in which mode, that eager and compiled agree, and
// what is kept on disk.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tandem/graph/run/kernel_tuning.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

// A row with three kernels, newest first: a slow one, a fast one with its bits, and the fastest,
// which rounds in another way.
std::atomic<int> slow_runs, fast_runs, other_runs;

void thrice(const KernelCall& k) {
  for (int64_t i = 0; i < k.out[0].numel; ++i) k.out[0].as<float>()[i] = 3 * k.in[0].as<float>()[i];
}
void wait_for(std::chrono::microseconds t) {
  const auto end = std::chrono::steady_clock::now() + t;
  while (std::chrono::steady_clock::now() < end) {}
}
void slow(const KernelCall& k) {
  ++slow_runs;
  wait_for(std::chrono::microseconds(1500));
  thrice(k);
}
void fast(const KernelCall& k) {
  ++fast_runs;
  wait_for(std::chrono::microseconds(500));
  thrice(k);
}
void other(const KernelCall& k) {
  ++other_runs;
  for (int64_t i = 0; i < k.out[0].numel; ++i)
    k.out[0].as<float>()[i] = 3 * k.in[0].as<float>()[i] + 1e-3f;
}
bool not_tiny(const KernelCall& k) { return k.in[0].shape[0] > 2; }

constinit const OpDef tuned_row =
    index_row("test_tuned", {"x"})
        .infer([](InferCall& c) { c.out[0] = c.in[0]; })
        .reference([](const KernelCall& k) { thrice(k); }, {DType::f32})
        .doc("3 x by three kernels.");

Tensor tuned(const Tensor& x) {
  static const bool once = [] {
    register_op(tuned_row);
    register_kernel(DeviceKind::cpu, tuned_row, {not_tiny, nullptr, nullptr, other});
    register_kernel(DeviceKind::cpu, tuned_row, {not_tiny, nullptr, nullptr, fast});
    register_kernel(DeviceKind::cpu, tuned_row, {nullptr, nullptr, nullptr, slow});
    return true;
  }();
  (void)once;
  return call(tuned_row, nullptr, SourceLocation::here(), x);
}

class KernelTuningTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "tandem_kernel_tuning";
    std::filesystem::remove_all(folder_);
    if (const char* v = std::getenv("TANDEM_CACHE_DIR")) before_ = v;
    setenv("TANDEM_CACHE_DIR", folder_.c_str(), 1);
    detail::forget_tuning();
  }
  void TearDown() override {
    set_kernel_tuning(KernelTuning::off);
    detail::forget_tuning();
    before_.empty() ? unsetenv("TANDEM_CACHE_DIR") : setenv("TANDEM_CACHE_DIR", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  // Which kernel runs f(x): by what only that one counted.
  template <class F>
  std::string kernel_of(F&& f, int64_t n = 8) {
    const Tensor x = ones({n, 5});
    f(x);  // chosen here at the latest
    slow_runs = fast_runs = other_runs = 0;
    f(x);
    return std::string(slow_runs ? "slow" : "") + (fast_runs ? "fast" : "") +
           (other_runs ? "other" : "");
  }
  std::filesystem::path folder_;
  std::string before_;
};

TEST_F(KernelTuningTest, EachModeChooses) {
  const auto eager = [](const Tensor& x) { return tuned(x); };
  auto compiled = compile([](Tensor x) { return tuned(x); });
  EXPECT_EQ(kernel_of(eager), "slow");
  EXPECT_EQ(kernel_of(compiled), "slow");
  EXPECT_EQ(detail::tuning_counts().measured, 0);

  set_kernel_tuning(KernelTuning::equal_bits);
  EXPECT_EQ(kernel_of(eager, 9), "slow") << "only compiling measures";
  auto again = compile([](Tensor x) { return tuned(x); });
  EXPECT_EQ(kernel_of(again, 9), "fast");
  EXPECT_EQ(kernel_of(eager, 9), "fast") << "eager shares the choice";
  EXPECT_EQ(detail::tuning_counts().measured, 1);

  set_kernel_tuning(KernelTuning::full);
  EXPECT_EQ(kernel_of(eager, 10), "other");
  auto third = compile([](Tensor x) { return tuned(x); });
  EXPECT_EQ(kernel_of(third, 10), "other");
  EXPECT_EQ(kernel_of(eager, 9), "other") << "measured before, for both modes";
  EXPECT_EQ(kernel_of(eager, 2), "slow") << "no other kernel takes it";
  EXPECT_EQ(detail::tuning_counts().measured, 2);
}

TEST_F(KernelTuningTest, ChoicesAreKeptOnDisk) {
  set_kernel_tuning(KernelTuning::full);
  const auto eager = [](const Tensor& x) { return tuned(x); };
  EXPECT_EQ(kernel_of(eager), "other");
  detail::forget_tuning();
  slow_runs = fast_runs = other_runs = 0;
  tuned(ones({8, 5}));
  EXPECT_EQ(slow_runs + fast_runs, 0);
  EXPECT_EQ(other_runs, 1) << "nothing is measured again";
  EXPECT_EQ(detail::tuning_counts().from_disk, 1);

  // Bytes that are no choices, or choices of kernels that are not there, are no harm.
  for (const auto& file : std::filesystem::directory_iterator(folder_))
    if (file.path().filename().string().starts_with("kernels_")) {
      std::string text;
      std::getline(std::ifstream(file.path()), text, '\0');
      std::ofstream(file.path()) << "\xff\xfe nonsense\n" << text.substr(0, 16) << " 3 99 -7\n";
    }
  detail::forget_tuning();
  EXPECT_EQ(kernel_of(eager), "slow");
}

TEST_F(KernelTuningTest, TheBudgetEnds) {
  set_kernel_tuning(KernelTuning::equal_bits);
  auto many = compile([](Tensor x) {
    for (int64_t i = 0; i < 40; ++i) x = tuned(x.narrow(0, 0, x.size(0) - 1));
    return x;
  });
  many(ones({60, 3}));
  const int64_t measured = detail::tuning_counts().measured;
  EXPECT_GE(measured, 1);
  EXPECT_LT(measured, 40);
}

TEST_F(KernelTuningTest, ConvolutionsKeepTheirNumbers) {
  manual_seed(1);
  const Tensor x = randn({2, 40, 9, 9}), w = randn({48, 40, 3, 3});
  const Tensor before = conv2d(x, w, {}, 1, 1);
  set_kernel_tuning(KernelTuning::full);
  auto fast_conv = compile([](Tensor a, Tensor b) { return conv2d(a, b, {}, 1, 1); });
  const Tensor eager = conv2d(x, w, {}, 1, 1), compiled = fast_conv(x, w);
  EXPECT_EQ(eager.contiguous().to_vector<float>(), compiled.contiguous().to_vector<float>());
  EXPECT_LE(max(abs(eager - before)).item<float>(), 1e-4f);
}

}  // namespace
}  // namespace tandem
