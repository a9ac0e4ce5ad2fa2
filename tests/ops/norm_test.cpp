// SPDX-License-Identifier: Apache-2.0
// Normalisation and softmax: PyTorch's cases, derivatives to order two, vmap, error texts.
#include <cmath>

#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class NormTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

TEST_F(NormTest, HandValues) {
  Tensor x = tensor({{1., 3.}, {2., 6.}}), y = tensor({{0., std::log(3.)}}, float64);
  expect_close(layer_norm(x, {2}, {}, {}, 0.0), tensor({{-1., 1.}, {-1., 1.}}));
  expect_close(softmax(y, 1), tensor({{0.25, 0.75}}, float64));
  expect_close(log_softmax(y, -1), tensor({{std::log(0.25), std::log(0.75)}}, float64));
  expect_close(rms_norm(tensor({{3., 4.}}), {2}, {}, 0.0),
               tensor({{3. / std::sqrt(12.5), 4. / std::sqrt(12.5)}}), 1e-6);
  expect_close(softmax(tensor(2.0), 0), tensor(1.0));
}

TEST_F(NormTest, RunningStatistics) {
  Tensor x = tensor({{1., 3.}, {3., 9.}}, float64);
  BatchNormResult r = batch_norm(x, zeros({2}, float64), ones({2}, float64), {}, {}, true, 0.5, 0);
  expect_close(r.y, tensor({{-1., -1.}, {1., 1.}}, float64));
  expect_close(r.running_mean, tensor({1., 3.}, float64));
  expect_close(r.running_var, tensor({1.5, 9.5}, float64));
  BatchNormResult e = batch_norm(x, r.running_mean, r.running_var, {}, {}, false, 0.5, 0);
  expect_close(e.y, (x - r.running_mean) / r.running_var.sqrt());
  expect_close(e.running_mean, r.running_mean);
}

TEST_F(NormTest, SixteenBitsKeepTheirDtypeAndF32Statistics) {
  Tensor x = ramp({4, 6}).to(bfloat16), w = ramp({6}).to(float32);
  Tensor y = layer_norm(x, {6}, w);
  EXPECT_EQ(y.dtype(), bfloat16);
  expect_close(y, layer_norm(x.to(float32), {6}, w).to(bfloat16), 0, 0);
  Tensor s = batch_norm_stats(x).mean;
  EXPECT_EQ(s.dtype(), float32);
}

TEST_F(NormTest, Gradients) {
  auto layer = [](std::span<const Tensor> v) {
    return Tensors{layer_norm(v[0], {2, 3}, v[1], v[2])};
  };
  expect_gradients(layer, {ramp({2, 2, 3}), ramp({2, 3}, .5, 1), ramp({2, 3}, .3)});
  auto plain = [](std::span<const Tensor> v) { return Tensors{layer_norm(v[0], {3})}; };
  expect_gradients(plain, {ramp({2, 3})});
  auto rms = [](std::span<const Tensor> v) { return Tensors{rms_norm(v[0], {3}, v[1])}; };
  expect_gradients(rms, {ramp({2, 3}), ramp({3}, .5, 1)});
  auto batch = [](std::span<const Tensor> v) {
    BatchNormStats s = batch_norm_stats(v[0], v[1], v[2]);
    return Tensors{s.y, s.mean, s.var};
  };
  expect_gradients(batch, {ramp({3, 2, 2}), ramp({2}, .5, 1), ramp({2}, .3)});
  auto infer = [](std::span<const Tensor> v) {
    return Tensors{batch_norm(v[0], v[1], v[2], v[3], v[4]).y};
  };
  expect_gradients(infer, {ramp({3, 2}), ramp({2}, .2), ramp({2}, .1, 2), ramp({2}), ramp({2})});
  auto group = [](std::span<const Tensor> v) { return Tensors{group_norm(v[0], 2, v[1], v[2])}; };
  expect_gradients(group, {ramp({1, 4, 2}), ramp({4}, .5, 1), ramp({4}, .3)}, 1);
  auto soft = [](std::span<const Tensor> v) {
    return Tensors{softmax(v[0], 1), log_softmax(v[0], 0)};
  };
  expect_gradients(soft, {ramp({2, 3, 2})});
  auto unit = [](std::span<const Tensor> v) { return Tensors{normalize(v[0])}; };
  expect_gradients(unit, {ramp({2, 3})});
}

TEST_F(NormTest, Vmap) {
  auto layer = [](std::span<const Tensor> v) { return layer_norm(v[0], {4}, v[1], v[2]); };
  Tensor x = ramp({3, 2, 4}), w = ramp({3, 4}, .5, 1), b = ramp({3, 4});
  expect_vmap(layer, {x, w.select(0, 0), b.select(0, 0)}, {true, false, false});
  expect_vmap(layer, {x, w, b}, {true, true, true});
  expect_vmap(layer, {x.select(0, 0), w, b.select(0, 0)}, {false, true, false});
  auto dw = [](std::span<const Tensor> v) {
    auto f = [&](const Tensor& u) { return layer_norm(v[0], {4}, u, v[2]).square().sum(); };
    return grad(f)(v[1]);
  };
  expect_vmap(dw, {x, w.select(0, 0), b.select(0, 0)}, {true, false, false});
  auto batch = [](std::span<const Tensor> v) {
    auto f = [](const Tensor& u) {
      return (batch_norm_stats(u).y * ramp({3, 2, 2})).square().sum();
    };
    return grad(f)(v[0]);
  };
  expect_vmap(batch, {ramp({2, 3, 2, 2})}, {true});
  auto soft = [](std::span<const Tensor> v) {
    auto f = [](const Tensor& u) { return softmax(u, -1).square().sum(); };
    return grad(f)(v[0]);
  };
  expect_vmap(soft, {x}, {true});
}

TEST_F(NormTest, EmptyLines) {
  EXPECT_EQ(softmax(zeros({3, 0}), 1).shape(), Shape(3, 0));
  EXPECT_EQ(softmax(zeros({0, 3}), 1).shape(), Shape(0, 3));
  EXPECT_EQ(layer_norm(zeros({0, 3}), {3}).shape(), Shape(0, 3));
}

TEST_F(NormTest, Errors) {
  expect_error(ErrorKind::Shape, "layer_norm: normalized_shape is [5], x is [2, 3]", [] {
    layer_norm(zeros({2, 3}), {5});
  });
  expect_error(ErrorKind::Shape, "weight is [4], expected [3]", [] {
    layer_norm(zeros({2, 3}), {3}, zeros({4}));
  });
  expect_error(ErrorKind::DType, "x is float64, weight is float32", [] {
    layer_norm(zeros({2, 3}, float64), {3}, zeros({3}));
  });
  expect_error(ErrorKind::Value, "one value per channel, training expects more", [] {
    batch_norm(zeros({1, 3}), {}, {}, {}, {}, true);
  });
  expect_error(ErrorKind::Value, "empty batch", [] {
    batch_norm(zeros({0, 3}), {}, {}, {}, {}, true);
  });
  expect_error(ErrorKind::Shape, "running_mean is [4], x is [2, 3]", [] {
    batch_norm(zeros({2, 3}), zeros({4}), zeros({4}), {}, {}, false);
  });
  expect_error(ErrorKind::Shape, "6 channels do not divide into 4 groups", [] {
    group_norm(zeros({2, 6, 3}), 4);
  });
  expect_error(ErrorKind::DType, "softmax: x is int64, expected a floating dtype", [] {
    softmax(zeros({2, 3}, int64), 1);
  });
  expect_error(ErrorKind::Index, "softmax: dimension 2 is out of range", [] {
    softmax(zeros({2, 3}), 2);
  });
}

TEST_F(NormTest, Golden) {
  std::map<std::string, GoldenFn> t;
  t["layer_norm"] = [](const Golden& g) {
    return Tensors{layer_norm(g.at(0), g.list("normalized_shape", {}), g.at(1), g.at(2),
                              g.number("eps", 1e-5))};
  };
  t["rms_norm"] = [](const Golden& g) {
    return Tensors{
        rms_norm(g.at(0), g.list("normalized_shape", {}), g.at(1), g.number("eps", 1e-5))};
  };
  t["batch_norm"] = [](const Golden& g) {
    bool training = g.flag("training", false);
    BatchNormResult r = batch_norm(g.at(0), g.at(1), g.at(2), g.at(3), g.at(4), training,
                                   g.number("momentum", 0.1), g.number("eps", 1e-5));
    if (!training || !g.at(1).defined()) return Tensors{r.y};
    return Tensors{r.y, r.running_mean, r.running_var};
  };
  t["group_norm"] = [](const Golden& g) {
    return Tensors{group_norm(g.at(0), g.integer("num_groups", 1), g.at(1), g.at(2))};
  };
  t["instance_norm"] = [](const Golden& g) { return Tensors{instance_norm(g.at(0)).y}; };
  t["normalize"] = [](const Golden& g) {
    return Tensors{normalize(g.at(0), g.number("p", 2), g.integer("dim", 1))};
  };
  auto along = [](auto f) {
    return [f](const Golden& g) {
      return Tensors{f(g.at(0), g.integer("dim", -1), g.dtype("dtype"), SourceLocation::here())};
    };
  };
  t["softmax"] = along(softmax);
  t["log_softmax"] = along(log_softmax);
  t["softmin"] = along(softmin);
  EXPECT_GE(run_golden("norm_loss", t), 45);
}

}  // namespace
}  // namespace tandem
