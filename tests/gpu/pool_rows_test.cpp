// SPDX-License-Identifier: Apache-2.0
// Pooling of images in both orders of memory and of numbers of channels around a thread's group,
// with derivatives, against the CPU.
#include <functional>

#include "tandem/graph/backend.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class PoolRows : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(15);
    reset_host_runs();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
};
TD_OVER_DEVICES(PoolRows);

Tensor in_order(const Tensor& x, bool last) {
  return last && x.dim() == 4 ? x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}) : x;
}

struct Pooling2d {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
};
const Pooling2d kPools[] = {
    {"max", [](const Tensor& x) { return max_pool2d(x, {3}, {2}, {1}); }},
    {"max, dilated", [](const Tensor& x) { return max_pool2d(x, {2}, {1}, {1}, {2}); }},
    {"average", [](const Tensor& x) { return avg_pool2d(x, {3}, {2}, {1}); }},
    {"adaptive average",
     [](const Tensor& x) {
       return adaptive_avg_pool2d(x, {3, 2});
     }},
    {"adaptive max",
     [](const Tensor& x) {
       return adaptive_max_pool2d(x, {3, 2});
     }},
    {"all",
     [](const Tensor& x) {
       return adaptive_avg_pool2d(x, {1, 1});
     }},
};

TEST_P(PoolRows, FollowTheCpu) {
  for (const int64_t channels : {3, 8, 24}) {
    for (const bool last : {false, true}) {
      for (const DType t : {float32, bfloat16}) {
        for (const Pooling2d& p : kPools) {
          SCOPED_TRACE(std::string(p.name) + " " + std::to_string(channels) + " " + to_string(t));
          if (t == bfloat16 && channels == 24) continue;
          const Tensor x = in_order(floor(randn({2, channels, 9, 10}) * 9.0).to(t), last);
          const auto run = [&](const Tensor& in) {
            const Tensor leaf = in.detach().requires_grad_();
            const Tensor y = p.f(leaf);
            y.backward(floor(y.detach() * 2.0));
            return std::pair(y.detach().cpu().to(float32), leaf.grad().cpu().to(float32));
          };
          const auto got = run(x.to(device_)), want = run(x);
          const double tolerance = t == bfloat16 ? 4e-2 : 1e-5;
          EXPECT_TRUE(allclose(got.first, want.first, tolerance, tolerance));
          EXPECT_TRUE(allclose(got.second, want.second, tolerance, tolerance));
        }
      }
    }
  }
}

// Places that are not in the window of the output that names them, and one outside of the plane.
TEST_P(PoolRows, PlacesOfMaximaMayBeAny) {
  const PoolAttrs attrs{
      .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}, .dilation = {1, 1}, .size = {6, 6}};
  for (const bool last : {false, true}) {
    const Tensor gy = in_order(floor(randn({2, 8, 3, 3}) * 9.0), last);
    const Tensor places = in_order(floor(rand({2, 8, 3, 3}) * 36.0).to(int32), last);
    const Tensor want = max_pool_backward(gy, places, attrs);
    EXPECT_TRUE(same_bits(max_pool_backward(gy.to(device_), places.to(device_), attrs), want));
    const Tensor bad = cat({places.slice(0, 0, 1, 1), places.slice(0, 1, 2, 1) * 0 + 36}, 0);
    const std::string text = thrown(
        [&] { max_pool_backward(gy.to(device_), bad.to(device_), attrs).to_vector<float>(); });
    EXPECT_TRUE(has(text, "index 36 lies outside the plane")) << text;
  }
}

}  // namespace
}  // namespace tandem::gpu
