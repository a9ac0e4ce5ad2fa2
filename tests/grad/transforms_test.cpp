// SPDX-License-Identifier: Apache-2.0
// grad, vjp, jvp, vmap, checkpoint, functional_call, custom_vjp, gradcheck; tape properties.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tandem/tandem.h"
#include "tests/grad/close.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

TEST(Grad, NestsToAnyOrder) {
  auto f = [](Tensor x) { return x * x * x * x; };
  Tensor x = full({}, 2.0, float64);
  EXPECT_EQ(grad(f)(x).item<double>(), 32.0);
  EXPECT_EQ(grad(grad(f))(x).item<double>(), 48.0);
  EXPECT_EQ(grad(grad(grad(f)))(x).item<double>(), 48.0);
  auto [value, derivative] = value_and_grad(f)(x);
  EXPECT_EQ(value.item<double>(), 16.0);
  EXPECT_FALSE(derivative.requires_grad());
}

TEST(Grad, LevelsDoNotMix) {
  // d/dx x * d/dy (x + y) = 1, not 2: perturbations stay separate.
  auto f = [](Tensor x) { return x * grad([x](Tensor y) { return x + y; })(full({}, 1.0)); };
  EXPECT_EQ(grad(f)(full({}, 3.0)).item<float>(), 1.0f);
}

TEST(Grad, ArgumentsAndUnused) {
  auto f = [](Tensor a, Tensor b) { return (a * a).sum() + 0.0 * b.sum(); };
  std::vector<Tensor> g = grad(f, {0, 1})(ones({2}), ones({3}));
  expect_close(g[0], full({2}, 2.0));
  expect_close(g[1], zeros({3}));
  Tensor x = ones({2}).requires_grad_(), z = ones({2}).requires_grad_();
  Tensor y = (x * x).sum();
  EXPECT_TRUE(has(thrown([&] { grad(y, z); }), "is not used by"));
}

TEST(Grad, VjpMayBeCalledTwice) {
  Vjp v = vjp([](std::span<const Tensor> x) { return Tensors{x[0] * x[1]}; },
              {full({}, 3.0), full({}, 5.0)});
  EXPECT_EQ(v(Tensors{full({}, 1.0)})[0].item<float>(), 5.0f);
  EXPECT_EQ(v(Tensors{full({}, 2.0)})[1].item<float>(), 6.0f);
}

TEST(Grad, JvpAndJacobianAgreeWithDifferences) {
  auto f = [](Tensor x) { return sin(x) * x.sum(); };
  Tensor x = tensor({0.3, 0.7, -1.1}).to(float64), v = tensor({1.0, -2.0, 0.5}).to(float64);
  auto [value, derivative] = jvp(f, x, v);
  double e = 1e-6;
  expect_close(derivative, (f(x + v * e) - f(x - v * e)) / (2 * e), 1e-8);
  Tensor j = jacobian(f, x);
  expect_close(matmul(j, v), derivative, 1e-12);
  auto q = [](Tensor x) { return (x * x * x).sum(); };
  Tensor h = hessian(q, x);
  EXPECT_NEAR(h.to_vector<double>()[0], 6 * 0.3, 1e-6);
  EXPECT_NEAR(h.to_vector<double>()[1], 0, 1e-12);
}

// Per-example gradients of a model's parameters by vmap(grad) against a loop.
template <class Net>
void per_sample(Net& net, const Tensor& x, const Tensor& y) {
  auto params = net.named_parameters();
  for (auto& [name, p] : params) {
    auto loss = [&, p = p](Tensor w, Tensor xi, Tensor yi) {
      Tensor out;
      functional_call({{p, w}}, [&]() -> Tensors {
        out = cross_entropy(net(xi.unsqueeze(0)), yi.unsqueeze(0));
        return {out};
      });
      return out;
    };
    Tensor together = vmap(grad(loss), {kNoBatchDim, 0, 0})(p.value().detach(), x, y);
    for (int64_t i = 0; i < x.size(0); ++i)
      expect_close(together.select(0, i), grad(loss)(p.value().detach(), x[i], y[i]), 1e-5);
  }
}

TEST(Vmap, PerSampleGradients) {
  manual_seed(0);
  struct Conv : nn::Module {
    nn::Conv2d conv{2, 3, 3};
    nn::LayerNorm ln{27};
    nn::Linear fc{27, 4};
    Conv() { TD_REGISTER(conv, ln, fc); }
    Tensor forward(Tensor x) { return fc(ln(relu(conv(x)).flatten(1))); }
  } conv;
  per_sample(conv, randn({3, 2, 5, 5}), randint(0, 4, {3}));
  struct Words : nn::Module {
    nn::Embedding table{7, 4};
    nn::Linear fc{4, 3};
    Words() { TD_REGISTER(table, fc); }
    Tensor forward(Tensor x) { return fc(table(x).mean({1})); }
  } words;
  per_sample(words, randint(0, 7, {3, 5}), randint(0, 3, {3}));
}

TEST(Vmap, OfGradOfVmap) {
  auto inner = [](Tensor x) { return vmap([](Tensor r) { return (r * r).sum(); })(x).sum(); };
  Tensor x = randn({2, 3, 4});
  expect_close(vmap(grad(inner))(x), x * 2.0, 1e-6);
  expect_close(grad([&](Tensor t) { return vmap(inner)(t).sum(); })(x), x * 2.0, 1e-6);
}

TEST(Vmap, DimensionsAndDetach) {
  Tensor x = randn({3, 5}), w = randn({3});
  Tensor y = vmap([&](Tensor c) { return matmul(c, w); }, {1})(x);
  expect_close(y, matmul(x.t(), w), 1e-5);
  Tensor z = vmap([](Tensor c) { return c * 2.0; }, {1}, 1)(x);
  expect_close(z, x * 2.0);
  // detach() inside cuts the outer tape too.
  Tensor leaf = randn({4}).requires_grad_();
  vmap([](Tensor t) { return t * t.detach(); })(leaf).sum().backward();
  expect_close(leaf.grad(), leaf.detach());
  EXPECT_TRUE(
      has(thrown([&] { vmap([](Tensor a, Tensor b) { return a + b; })(x, w.unsqueeze(0)); }),
          "examples"));
}

TEST(Checkpoint, SameGradientsAndStateMovesOnce) {
  manual_seed(4);
  nn::Linear a(6, 6);
  nn::BatchNorm1d bn(6);
  auto block = [&](Tensor x) { return dropout(relu(bn(a(x))), 0.4); };
  Tensor x = randn({5, 6});
  std::vector<float> want, mean;
  for (bool saved : {false, true}) {
    manual_seed(9);
    a.zero_grad();
    bn.running_mean.assign_(zeros({6}));
    Tensor leaf = x.detach().requires_grad_();
    Tensor y = saved ? checkpoint(block, leaf) : block(leaf);
    y.square().sum().backward();
    std::vector<float> g = a.weight.grad().to_vector<float>(), gx = leaf.grad().to_vector<float>();
    g.insert(g.end(), gx.begin(), gx.end());
    if (want.empty()) {
      want = g;
      mean = bn.running_mean.value().to_vector<float>();
    }
    EXPECT_EQ(g, want);
    EXPECT_EQ(bn.running_mean.value().to_vector<float>(), mean);
  }
}

TEST(CustomVjp, ReplacesTheDerivative) {
  auto straight_through = custom_vjp([](std::span<const Tensor> x) { return Tensors{round(x[0])}; },
                                     [](std::span<const Tensor>, std::span<const Tensor>,
                                        std::span<const Tensor> g) { return Tensors{g[0]}; });
  Tensor x = tensor({0.4f, 1.6f}).requires_grad_();
  Tensor y = straight_through(x);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 2}));
  (y * 3.0).sum().backward();
  expect_close(x.grad(), full({2}, 3.0));
  Tensor again = vmap([&](Tensor r) { return straight_through(r); })(randn({2, 3}));
  EXPECT_EQ(again.shape(), Shape(2, 3));
}

TEST(Gradcheck, FindsAWrongRule) {
  auto wrong = custom_vjp([](std::span<const Tensor> x) { return Tensors{x[0] * x[0]}; },
                          [](std::span<const Tensor> x, std::span<const Tensor>,
                             std::span<const Tensor> g) { return Tensors{g[0] * x[0]}; });
  Tensor x = tensor({0.5, 2.0}).to(float64);
  std::string text = thrown(
      [&] { gradcheck([&](std::span<const Tensor> v) { return Tensors{wrong(v[0])}; }, {x}); });
  EXPECT_TRUE(has(text, "for element 0 of input 0 is")) << text;
  EXPECT_TRUE(
      gradcheck([](std::span<const Tensor> v) { return Tensors{v[0] * v[0]}; }, {x}, {.order = 2}));
}

TEST(Tape, MillionsOfNodesAreFreed) {
  Tensor x = ones({1}).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 2'000'000; ++i) y = y + 1.0;
  y = Tensor();  // freed without a walk
  y = x;
  for (int i = 0; i < 300'000; ++i) y = y * 1.0;
  y.backward();
  EXPECT_EQ(x.grad().item<float>(), 1.0f);
}

TEST(Tape, SecondBackwardNeedsRetain) {
  Tensor x = ones({2}).requires_grad_();
  Tensor y = (x * x).sum();
  y.backward();
  std::string text = thrown([&] { y.backward(); });
  EXPECT_TRUE(has(text, "second time") && has(text, "retain_graph")) << text;
  Tensor z = (x * x).sum();
  z.backward({}, true);
  z.backward();
  expect_close(x.grad(), full({2}, 6.0));
}

TEST(Tape, ThreadsShareParameters) {
  Param w{ones({8})};
  auto work = [&] {
    for (int i = 0; i < 50; ++i) (w.value() * 2.0).sum().backward();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  expect_close(w.grad(), full({8}, 400.0));
}

TEST(Modes, CompoundAssignmentWithItselfAndAfterAThrow) {
  Tensor x = tensor({1.0f, 2.0f});
  x += x;
  x *= x * x;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{8, 64}));
  EXPECT_THROW(x -= ones({3}), Error);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{8, 64})) << "x keeps its value";
}

TEST(Modes, NoGradAndAnomaly) {
  Tensor x = tensor({1.0f, 0.0f}).requires_grad_();
  {
    NoGradGuard no_grad;
    EXPECT_FALSE((x * 2.0).requires_grad());
  }
  DetectAnomalyGuard anomaly;
  std::string text = thrown([&] { log(x - 1.0); });
  EXPECT_TRUE(has(text, "log") && has(text, "NaN") && has(text, "transforms_test.cpp")) << text;
  Tensor masked = masked_fill(x.detach(), x.detach() == 0.0, -INFINITY);
  EXPECT_EQ(exp(masked + 1.0).to_vector<float>()[1], 0) << "a meant infinity passes";
  EXPECT_EQ((x.detach() + INFINITY).to_vector<float>()[1], INFINITY) << "so does a number's";
  text = thrown([&] { full({2}, 3e38) * 10.0; });
  EXPECT_TRUE(has(text, "infinity")) << text;
  text = thrown([&] { sqrt(x).sum().backward(); });
  EXPECT_TRUE(has(text, "infinity")) << text;
}

TEST(Modes, HooksSeeEveryOp) {
  struct Count : OpHook {
    int n = 0;
    void after(const OpDef&, std::span<const Tensor>) override { ++n; }
  } count;
  Tensor x = randn({4});
  {
    HookGuard hook(count);
    relu(x + 1.0).sum();
  }
  relu(x);
  EXPECT_EQ(count.n, 3);
}

}  // namespace
}  // namespace tandem
