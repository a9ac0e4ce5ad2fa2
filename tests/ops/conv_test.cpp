// SPDX-License-Identifier: Apache-2.0
// Convolutions: hand values, PyTorch's cases, derivatives to order two, vmap, error texts.
#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class ConvTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

TEST_F(ConvTest, HandValues) {
  Tensor x = tensor({1., 2., 3., 4.}).reshape({1, 1, 4}), w = tensor({1., 10.}).reshape({1, 1, 2});
  expect_close(conv1d(x, w), tensor({21., 32., 43.}).reshape({1, 1, 3}));
  expect_close(conv1d(x, w, tensor({0.5}), 2, 1), tensor({10.5, 32.5, 4.5}).reshape({1, 1, 3}));
  expect_close(conv1d(x, w, {}, 1, "same"), tensor({21., 32., 43., 4.}).reshape({1, 1, 4}));
  expect_close(conv1d(x, w, {}, 1, 0, 3), tensor({41.}).reshape({1, 1, 1}));
  expect_close(conv_transpose1d(x, w, {}, 2),
               tensor({1., 10., 2., 20., 3., 30., 4., 40.}).reshape({1, 1, 8}));
}

TEST_F(ConvTest, GroupsEqualSeparateConvolutions) {
  Tensor x = ramp({2, 4, 5, 4}), w = ramp({6, 2, 3, 2}, .6), b = ramp({6});
  Tensor y = conv2d(x, w, b, {1, 2}, {1, 0}, 1, 2);
  for (int64_t g = 0; g < 2; ++g) {
    Tensor part =
        conv2d(x.narrow(1, 2 * g, 2), w.narrow(0, 3 * g, 3), b.narrow(0, 3 * g, 3), {1, 2}, {1, 0});
    expect_close(y.narrow(1, 3 * g, 3).contiguous(), part);
  }
}

TEST_F(ConvTest, ChannelsLastInput) {
  Tensor x = ramp({2, 3, 5, 4}), w = ramp({4, 3, 3, 3}, .5);
  Tensor last = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  expect_close(conv2d(last, w, {}, 1, 1), conv2d(x, w, {}, 1, 1));
}

TEST_F(ConvTest, EmptyBatch) {
  Tensor x = zeros({0, 3, 4, 4}, float64).requires_grad_(), w = ramp({2, 3, 3, 3}).requires_grad_();
  Tensor y = conv2d(x, w);
  EXPECT_EQ(y.shape(), Shape(0, 2, 2, 2));
  y.sum().backward();
  expect_close(w.grad(), zeros({2, 3, 3, 3}, float64));
}

TEST_F(ConvTest, Gradients) {
  auto f = [](std::span<const Tensor> x) {
    return Tensors{conv2d(x[0], x[1], x[2], {2, 1}, {1, 0}, {1, 2}, 2)};
  };
  expect_gradients(f, {ramp({2, 2, 4, 5}), ramp({2, 1, 3, 2}, .5), ramp({2}, .2)});
  auto one = [](std::span<const Tensor> x) { return Tensors{conv1d(x[0], x[1], {}, 2, "valid")}; };
  expect_gradients(one, {ramp({1, 2, 6}), ramp({2, 2, 3}, .5)});
  auto three = [](std::span<const Tensor> x) { return Tensors{conv3d(x[0], x[1], {}, 1, 1)}; };
  expect_gradients(three, {ramp({1, 1, 2, 2, 3}), ramp({1, 1, 2, 2, 2}, .5)}, 1);
  auto up = [](std::span<const Tensor> x) {
    return Tensors{conv_transpose2d(x[0], x[1], x[2], 2, 1, 1)};
  };
  expect_gradients(up, {ramp({1, 2, 3, 2}), ramp({2, 1, 3, 3}, .5), ramp({1})});
}

TEST_F(ConvTest, Vmap) {
  for (int groups : {1, 2}) {
    auto f = [=](std::span<const Tensor> x) { return conv2d(x[0], x[1], x[2], 1, 1, 1, groups); };
    Tensor x = ramp({3, 2, 4, 4, 3}), w = ramp({3, 4, 4 / groups, 3, 2}, .5), b = ramp({3, 4});
    expect_vmap(f, {x, w, b}, {true, true, true});
    expect_vmap(f, {x, w.select(0, 0), b.select(0, 0)}, {true, false, false});
    expect_vmap(f, {x.select(0, 0), w, b.select(0, 0)}, {false, true, false});
    expect_vmap(f, {x.select(0, 0), w.select(0, 0), b}, {false, false, true});
    auto dw = [=](std::span<const Tensor> v) {
      auto g = [&](const Tensor& u) { return conv2d(v[0], u, {}, 1, 1, 1, groups).square().sum(); };
      return grad(g)(v[1]);
    };
    expect_vmap(dw, {x, w.select(0, 0)}, {true, false});
    auto dx = [=](std::span<const Tensor> v) {
      auto g = [&](const Tensor& u) { return conv2d(u, v[1], {}, 1, 1, 1, groups).square().sum(); };
      return grad(g)(v[0]);
    };
    expect_vmap(dx, {x, w}, {true, true});
  }
}

TEST_F(ConvTest, Errors) {
  expect_error(ErrorKind::Shape,
               "conv2d: weight expects 16 input channels, x is [8, 3, 32, 32] (3)", [] {
                 conv2d(zeros({8, 3, 32, 32}), zeros({4, 16, 3, 3}));
               });
  expect_error(ErrorKind::Shape, "kernel of 5 does not fit an input of 4", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({1, 1, 5, 5}));
  });
  expect_error(ErrorKind::DType, "x is float32, weight is float64", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({1, 1, 3, 3}, float64));
  });
  expect_error(ErrorKind::Shape, "conv2d: x is [4, 4], expected [n, channels, h, w]", [] {
    conv2d(zeros({4, 4}), zeros({1, 1, 3, 3}));
  });
  expect_error(ErrorKind::Value, "stride [0, 0] expects numbers of at least 1", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({1, 1, 3, 3}), {}, 0);
  });
  expect_error(ErrorKind::Value, "stride [1, 1, 1] has 3 entries, expected 1 or 2", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({1, 1, 3, 3}), {}, {1, 1, 1});
  });
  expect_error(ErrorKind::Shape, "3 output channels do not divide into 2 groups", [] {
    conv2d(zeros({1, 2, 4, 4}), zeros({3, 1, 3, 3}), {}, 1, 0, 1, 2);
  });
  expect_error(ErrorKind::Shape, "bias is [3], expected [2]", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({2, 1, 3, 3}), zeros({3}));
  });
  expect_error(ErrorKind::Value, "padding is \"some\"", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({2, 1, 3, 3}), {}, 1, "some");
  });
  expect_error(ErrorKind::Value, "padding \"same\" expects stride 1", [] {
    conv2d(zeros({1, 1, 4, 4}), zeros({2, 1, 3, 3}), {}, 2, "same");
  });
  expect_error(ErrorKind::Shape, "conv_transpose2d: weight expects 3 input channels", [] {
    conv_transpose2d(zeros({1, 2, 4, 4}), zeros({3, 1, 3, 3}));
  });
}

TEST_F(ConvTest, Golden) {
  std::map<std::string, GoldenFn> t;
#define TD_GOLDEN_CONV(name)                                                                      \
  t[#name] = [](const Golden& g) {                                                                \
    if (g.has("padding") && g.attrs["padding"].is_string())                                       \
      return Tensors{name(g.at(0), g.at(1), g.at(2), g.list("stride", {1}),                       \
                          PaddingMode(g.attrs["padding"].get_ref<const std::string&>()),          \
                          g.list("dilation", {1}), g.integer("groups", 1))};                      \
    return Tensors{name(g.at(0), g.at(1), g.at(2), g.list("stride", {1}), g.list("padding", {0}), \
                        g.list("dilation", {1}), g.integer("groups", 1))};                        \
  };
  TD_GOLDEN_CONV(conv1d)
  TD_GOLDEN_CONV(conv2d)
  TD_GOLDEN_CONV(conv3d)
#define TD_GOLDEN_TRANSPOSE(name)                                                                 \
  t[#name] = [](const Golden& g) {                                                                \
    return Tensors{name(g.at(0), g.at(1), g.at(2), g.list("stride", {1}), g.list("padding", {0}), \
                        g.list("output_padding", {0}), g.integer("groups", 1),                    \
                        g.list("dilation", {1}))};                                                \
  };
  TD_GOLDEN_TRANSPOSE(conv_transpose1d)
  TD_GOLDEN_TRANSPOSE(conv_transpose2d)
  EXPECT_GE(run_golden("contraction", t), 30);
}

}  // namespace
}  // namespace tandem
