// SPDX-License-Identifier: Apache-2.0
// Pooling: hand values, PyTorch's cases, derivatives, vmap, error texts.
#include <cmath>

#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class PoolTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

TEST_F(PoolTest, HandValues) {
  Tensor x = tensor({1., 5., 2., 4., 3.}).reshape({1, 1, 5});
  expect_close(max_pool1d(x, 2), tensor({5., 4.}).reshape({1, 1, 2}));
  expect_close(max_pool1d(x, 2, 2, 0, 1, true), tensor({5., 4., 3.}).reshape({1, 1, 3}));
  expect_close(avg_pool1d(x, 3, 2, 1), tensor({2., 11. / 3, 7. / 3}).reshape({1, 1, 3}));
  expect_close(avg_pool1d(x, 3, 2, 1, false, false), tensor({3., 11. / 3, 3.5}).reshape({1, 1, 3}));
  expect_close(adaptive_avg_pool1d(x, 2), tensor({8. / 3, 3.}).reshape({1, 1, 2}));
  expect_close(max_pool1d(tensor({-3, -1, -2, -5}).reshape({1, 1, 4}), 2),
               tensor({-1, -2}).reshape({1, 1, 2}));
}

TEST_F(PoolTest, TiesTakeTheFirstAndNanWins) {
  Tensor x = tensor({2., 2., 1., double(NAN)}).reshape({1, 1, 2, 2}).requires_grad_();
  Tensor y = max_pool2d(x, {1, 2});
  EXPECT_EQ(y.to_vector<double>()[0], 2.0);
  EXPECT_TRUE(std::isnan(y.to_vector<double>()[1]));
  y.sum().backward();
  expect_close(x.grad(), tensor({1., 0., 0., 1.}).reshape({1, 1, 2, 2}));
}

TEST_F(PoolTest, StridedInputs) {
  Tensor x = ramp({2, 3, 6, 5});
  Tensor last = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  expect_close(max_pool2d(last, 2), max_pool2d(x, 2));
  expect_close(avg_pool2d(last, 3, 1, 1), avg_pool2d(x, 3, 1, 1));
}

// Channels-last arrays have kernels of their own, whose last vector of channels overlaps with the
// one before it, and which walk the windows of a row once where no edge cuts them.
TEST_F(PoolTest, ChannelsLastIsWhatPlanesAre) {
  struct Case {
    int64_t kernel, stride, padding, step;
  };
  constexpr Case kCases[] = {{2, 2, 0, 1}, {3, 1, 1, 1}, {3, 2, 1, 1}, {2, 1, 1, 3}, {1, 2, 0, 1}};
  for (const int64_t channels : {3, 4, 6, 8, 11, 16, 17, 31, 40})
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << channels << " channels, kernel " << c.kernel
                                        << ", stride " << c.stride << ", step " << c.step);
      const Tensor ties = round(randn({2, channels, 9, 8}) * 2);
      const Tensor x = masked_fill(ties, ties == 5., NAN);
      const Tensor last = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
      const auto got = max_pool2d_with_indices(last, c.kernel, c.stride, c.padding, c.step);
      const auto want = max_pool2d_with_indices(x, c.kernel, c.stride, c.padding, c.step);
      EXPECT_EQ(got.indices.to_vector<int64_t>(), want.indices.to_vector<int64_t>());
      for (const Tensor& y :
           {got.output, max_pool2d(last, c.kernel, c.stride, c.padding, c.step)}) {
        const std::vector<float> a = y.to_vector<float>(), b = want.output.to_vector<float>();
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << i;
      }
    }
}

TEST_F(PoolTest, Gradients) {
  Tensor x = ramp({1, 2, 5, 4});
  auto max = [](std::span<const Tensor> v) {
    return Tensors{max_pool2d(v[0], {3, 2}, {2, 1}, {1, 0}).square()};
  };
  expect_gradients(max, {x});
  auto avg = [](std::span<const Tensor> v) {
    return Tensors{avg_pool2d(v[0], 3, 2, 1, true, false).square()};
  };
  expect_gradients(avg, {x});
  auto adaptive = [](std::span<const Tensor> v) {
    return Tensors{adaptive_avg_pool2d(v[0], {3, 3}).square(),
                   adaptive_max_pool2d(v[0], {2, 3}).square()};
  };
  expect_gradients(adaptive, {x});
}

TEST_F(PoolTest, Vmap) {
  Tensor x = ramp({3, 2, 2, 5, 4});
  auto max = [](std::span<const Tensor> v) { return max_pool2d(v[0], 2); };
  auto avg = [](std::span<const Tensor> v) { return avg_pool2d(v[0], 2, 1, 1); };
  auto dmax = [](std::span<const Tensor> v) {
    auto f = [](const Tensor& u) { return max_pool2d(u, 2).square().sum(); };
    return grad(f)(v[0]);
  };
  expect_vmap(max, {x}, {true});
  expect_vmap(avg, {x}, {true});
  expect_vmap(dmax, {x}, {true});
}

TEST_F(PoolTest, Errors) {
  expect_error(ErrorKind::Value, "padding [2, 2] is more than half of kernel_size [3, 3]", [] {
    max_pool2d(zeros({1, 1, 4, 4}), 3, 1, 2);
  });
  expect_error(ErrorKind::Shape, "a window of [5, 5] does not fit x [1, 1, 4, 4]", [] {
    max_pool2d(zeros({1, 1, 4, 4}), 5);
  });
  expect_error(ErrorKind::Shape, "lies entirely in the padding", [] {
    max_pool1d(zeros({1, 1, 1}), 3, 1, 2, 2);
  });
  expect_error(ErrorKind::Value, "kernel_size [2, 2, 2] has 3 entries, expected 1 or 2", [] {
    avg_pool2d(zeros({1, 1, 4, 4}), {2, 2, 2});
  });
  expect_error(ErrorKind::Shape, "max_pool2d: x is [4, 4]", [] { max_pool2d(zeros({4, 4}), 2); });
  expect_error(ErrorKind::DType, "avg_pool2d: x is int64, a mean expects a floating dtype", [] {
    avg_pool2d(zeros({1, 1, 4, 4}, int64), 2);
  });
  expect_error(ErrorKind::Value, "stride [0, 0] expects numbers of at least 1", [] {
    max_pool2d(zeros({1, 1, 4, 4}), 2, 0);
  });
}

TEST_F(PoolTest, Golden) {
  std::map<std::string, GoldenFn> t;
  auto max = [](auto f) {
    return [f](const Golden& g) {
      return Tensors{f(g.at(0), g.list("kernel_size", {}), g.list("stride", {}),
                       g.list("padding", {0}), g.list("dilation", {1}), g.flag("ceil_mode", false),
                       SourceLocation::here())};
    };
  };
  t["max_pool1d"] = max(max_pool1d);
  t["max_pool2d"] = [=](const Golden& g) {
    if (!g.flag("return_indices", false)) return max(max_pool2d)(g);
    auto [y, i] = max_pool2d_with_indices(g.at(0), g.list("kernel_size", {}), g.list("stride", {}),
                                          g.list("padding", {0}), g.list("dilation", {1}),
                                          g.flag("ceil_mode", false));
    return Tensors{y, i};
  };
  t["avg_pool1d"] = [](const Golden& g) {
    return Tensors{avg_pool1d(g.at(0), g.list("kernel_size", {}), g.list("stride", {}),
                              g.list("padding", {0}))};
  };
  t["avg_pool2d"] = [](const Golden& g) {
    return Tensors{avg_pool2d(g.at(0), g.list("kernel_size", {}), g.list("stride", {}),
                              g.list("padding", {0}), g.flag("ceil_mode", false),
                              g.flag("count_include_pad", true), g.integer("divisor_override", 0))};
  };
  auto adaptive = [](auto f) {
    return [f](const Golden& g) {
      return Tensors{f(g.at(0), g.list("output_size", {}), SourceLocation::here())};
    };
  };
  t["adaptive_avg_pool1d"] = adaptive(adaptive_avg_pool1d);
  t["adaptive_avg_pool2d"] = adaptive(adaptive_avg_pool2d);
  t["adaptive_max_pool1d"] = adaptive(adaptive_max_pool1d);
  t["adaptive_max_pool2d"] = adaptive(adaptive_max_pool2d);
  EXPECT_GE(run_golden("pool", t), 40);
}

}  // namespace
}  // namespace tandem
