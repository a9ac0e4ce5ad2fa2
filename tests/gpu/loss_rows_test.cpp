// SPDX-License-Identifier: Apache-2.0
// Losses with labels over numbers of classes and samples around those that a thread, a block and
// its pieces take, with their derivatives, against the CPU.
#include <cmath>

#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class LossRows : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(14);
    reset_host_runs();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
  // Loss and gradient on the device and on the CPU.
  void check(const Tensor& x, const Tensor& labels, const CrossEntropyOptions& options,
             double tolerance) {
    const auto run = [&](Tensor in, const Tensor& target) {
      in.requires_grad_();
      CrossEntropyOptions o = options;
      if (o.weight.defined()) o.weight = o.weight.to(in.device());
      const Tensor loss = cross_entropy(in, target, o);
      loss.sum().backward();
      return std::pair(loss.cpu().to(float32), in.grad().cpu().to(float32));
    };
    const auto want = run(x.clone(), labels);
    const auto got = run(x.to(device_), labels.to(device_));
    const auto again = run(x.to(device_), labels.to(device_));
    EXPECT_TRUE(allclose(got.first, want.first, tolerance, tolerance))
        << to_string(got.first) << " wanted " << to_string(want.first);
    const double scale =
        std::max(1.0 / double(labels.numel()), want.second.abs().amax().item<double>());
    EXPECT_TRUE(allclose(got.second / scale, want.second / scale, tolerance, tolerance));
    EXPECT_TRUE(same_bits(got.first, again.first));
    EXPECT_TRUE(same_bits(got.second, again.second));
  }
};
TD_OVER_DEVICES(LossRows);

Tensor labels_for(const Shape& samples, int64_t classes) { return randint(0, classes, samples); }

TEST_P(LossRows, NumbersOfClasses) {
  size_t at = 0;
  for (const int64_t classes : {64, 1, 3, 8, 1000, 10, 4099, 8192}) {
    if (left_out(at++)) continue;
    const int64_t n = classes < 100 ? 70 : 5;
    for (const DType t : {float32, bfloat16}) {
      SCOPED_TRACE(std::to_string(classes) + std::string(" ") + to_string(t));
      const Tensor x = (randn({n, classes}) * 3.0).to(t), labels = labels_for({n}, classes);
      check(x, labels, {}, t == bfloat16 ? 2e-2 : 3e-5);
    }
    const Tensor x = randn({n, classes}), labels = labels_for({n}, classes);
    SCOPED_TRACE(classes);
    check(x, labels, {.ignore_index = 0, .reduction = Reduction::none}, 3e-5);
    check(x, labels, {.reduction = Reduction::sum, .label_smoothing = 0.1}, 3e-5);
    check(x, labels, {.weight = rand({classes}) + 0.5}, 3e-5);
  }
}

// Classes that do not lie side by side, and samples enough for pieces and for a thread each.
TEST_P(LossRows, ManySamples) {
  const Tensor x = randn({3, 5, 50, 60}), labels = labels_for({3, 50, 60}, 5);
  check(x, labels, {}, 3e-5);
  check(x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}), labels, {.ignore_index = 2},
        3e-5);
  check(x, labels, {.weight = rand({5}) + 0.5, .reduction = Reduction::sum}, 3e-5);
  check(randn({20000, 8}), labels_for({20000}, 8), {}, 3e-5);
  check(randn({2, 300, 7}), labels_for({2, 7}, 300), {}, 3e-5);
}

// Infinite logits and NaN, as the CPU has them.
TEST_P(LossRows, LogitsThatAreNotFinite) {
  std::vector<float> v(6 * 16, 0.5f);
  for (size_t j = 0; j < 16; ++j) v[j] = -INFINITY;  // a sample without a largest class
  v[16 + 3] = INFINITY;
  v[32 + 5] = NAN;
  v[48 + 1] = -INFINITY;
  for (size_t j = 0; j < 8; ++j) v[64 + j] = -INFINITY;
  const Tensor x = tensor(v).reshape({6, 16});
  const Tensor labels = tensor({3, 3, 3, 2, 9, 1}).to(int64);
  const auto loss = [&](const Tensor& in, const Tensor& of) {
    return cross_entropy(in, of, {.reduction = Reduction::none}).to_vector<float>();
  };
  const auto got = loss(x.to(device_), labels.to(device_)), want = loss(x, labels);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i]))
      EXPECT_NEAR(got[i], want[i], 1e-4) << i;
    else
      EXPECT_EQ(std::isnan(got[i]) ? 0 : got[i], std::isnan(want[i]) ? 0 : want[i]) << i;
  }
}

TEST_P(LossRows, ALabelThatIsNoClass) {
  const Tensor x = randn({5000, 8}), labels = full({5000}, 7).to(int64);
  const Tensor bad = cat({labels.slice(0, 0, 4999, 1), tensor({8}).to(int64)}, 0);
  const std::string text =
      thrown([&] { cross_entropy(x.to(device_), bad.to(device_)).item<float>(); });
  EXPECT_TRUE(has(text, "label 8")) << text;
}

}  // namespace
}  // namespace tandem::gpu
