// SPDX-License-Identifier: Apache-2.0
// Functions composed of ops that make tensors from nothing (masks, edges, positions, windows) make
// them where their input is, not on the default device.
#include <cstdlib>
#include <functional>

#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"

namespace tandem::gpu {
namespace {

class Composites : public OverDevices {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "fake" && !std::getenv("TANDEM_TEST_ALL"))
      GTEST_SKIP() << "kernels are not what is tested; TANDEM_TEST_ALL=1 runs these";
    OverDevices::SetUp();
  }
};
TD_OVER_DEVICES(Composites);

struct Composite {
  const char* name;
  Shape shape;
  std::function<Tensor(const Tensor&)> f;
};

std::vector<Composite> composites() {
  const auto ids = [](const Tensor& x, int64_t n) { return floor(x * double(n)).to(int64); };
  return {
      {"alpha_dropout", {5, 6}, [](const Tensor& x) { return alpha_dropout(x, 0.4, true); }},
      {"affine_grid",
       {2, 2, 3},
       [](const Tensor& x) {
         return affine_grid(x, {2, 1, 4, 5});
       }},
      {"embedding_bag", {3, 4}, [&](const Tensor& x) { return embedding_bag(ids(x, 3), x); }},
      {"histc", {30}, [](const Tensor& x) { return histc(x, 5, 0, 1); }},
      {"max_unpool2d",
       {1, 2, 4, 4},
       [](const Tensor& x) {
         const OutputAndIndices y = max_pool2d_with_indices(x, {2});
         return max_unpool2d(y.output, y.indices, {2});
       }},
      {"multilabel_margin_loss",
       {3, 4},
       [&](const Tensor& x) { return multilabel_margin_loss(x, ids(x, 5) - 1); }},
      {"matrix_power", {3, 3}, [](const Tensor& x) { return linalg::matrix_power(x, 0); }},
  };
}

TEST_P(Composites, MakeTensorsWhereTheirInputIs) {
  manual_seed(3);
  for (const Composite& c : composites()) {
    SCOPED_TRACE(c.name);
    const Tensor x = rand(c.shape);
    manual_seed(4);
    const Tensor want = c.f(x);
    manual_seed(4);
    const Tensor got = c.f(x.to(device_));
    EXPECT_EQ(got.device(), device_);
    EXPECT_TRUE(allclose(got.to(cpu), want, 1e-4, 1e-5, true));
  }
}

}  // namespace
}  // namespace tandem::gpu
