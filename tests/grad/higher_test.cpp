// SPDX-License-Identifier: Apache-2.0
// Transforms of transforms, on models: gradients through vmap, checkpoint and custom rules, random
// draws under them, forward mode against differences.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tandem/tandem.h"
#include "tests/grad/close.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

struct Mlp : nn::Module {
  nn::Linear a{3, 5, {.dtype = float64}}, b{5, 2, {.dtype = float64}};
  Mlp() { TD_REGISTER(a, b); }
  Tensor forward(Tensor x) { return b(tanh(a(x))); }
};

Tensor loss_of(Mlp& net, const Tensor& w, const Tensor& x, const Tensor& y) {
  Tensor out;
  functional_call({{net.a.weight, w}}, [&]() -> Tensors {
    out = (net(x) - y).square().sum();
    return {};
  });
  return out;
}

TEST(Higher, HessianOfAModelIsSymmetricAndRight) {
  manual_seed(1);
  Mlp net;
  Tensor x = randn({4, 3}, float64), y = randn({4, 2}, float64);
  Tensor w = net.a.weight.value().detach();
  auto f = [&](Tensor v) { return loss_of(net, v, x, y); };
  Tensor h = hessian(f, w).reshape({15, 15});
  expect_close(h, h.t(), 1e-10);
  // Along a direction: forward over reverse, and differences of gradients.
  Tensor v = randn({5, 3}, float64);
  Tensor hv = jvp(grad(f), w, v).second;
  expect_close(matmul(h, v.reshape({15})), hv.reshape({15}), 1e-10);
  double e = 1e-5;
  expect_close(hv, (grad(f)(w + v * e) - grad(f)(w - v * e)) / (2 * e), 1e-6);
}

TEST(Higher, GradientPenaltyTrains) {
  // The gradient of a gradient's norm reaches the parameters by backward().
  manual_seed(2);
  Mlp net;
  Tensor x = randn({4, 3}, float64);
  auto penalty = [&] {
    Tensor in = x.detach().requires_grad_();
    Tensor g = grad(net(in).sum(), in, {.create_graph = true});
    return (g.square().sum({1}).sqrt() - 1.0).square().mean();
  };
  penalty().backward();
  Tensor got = net.b.weight.grad();
  Tensor w = net.b.weight.value().detach();
  double e = 1e-6;
  for (int64_t i : {0, 3, 9}) {
    std::vector<double> v = w.to_vector<double>(), u = v;
    v[static_cast<size_t>(i)] += e, u[static_cast<size_t>(i)] -= e;
    net.b.weight.assign_(tensor(v, w.shape()));
    double up = penalty().item<double>();
    net.b.weight.assign_(tensor(u, w.shape()));
    double down = penalty().item<double>();
    EXPECT_NEAR(got.to_vector<double>()[static_cast<size_t>(i)], (up - down) / (2 * e), 1e-7);
  }
}

TEST(Higher, VmapOfGradInsideAnOuterGrad) {
  manual_seed(3);
  Mlp net;
  Tensor x = randn({4, 3}, float64), y = randn({4, 2}, float64);
  Tensor w = net.a.weight.value().detach();
  auto per_example = [&](Tensor v, Tensor xi, Tensor yi) { return loss_of(net, v, xi, yi); };
  // Sum over examples of the squared norm of each one's gradient: a second-order loss.
  auto total = [&](Tensor v) {
    return vmap(grad(per_example), {kNoBatchDim, 0, 0})(v, x, y).square().sum();
  };
  auto by_loop = [&](Tensor v) {
    Tensor sum;
    for (int64_t i = 0; i < 4; ++i) {
      Tensor g = grad(per_example)(v, x[i], y[i]).square().sum();
      sum = sum.defined() ? sum + g : g;
    }
    return sum;
  };
  expect_close(total(w), by_loop(w), 1e-9);
  expect_close(grad(total)(w), grad(by_loop)(w), 1e-8);
}

TEST(Higher, VmapOverParametersIsAnEnsemble) {
  manual_seed(4);
  Mlp net;
  Tensor ws = randn({6, 5, 3}, float64), x = randn({4, 3}, float64), y = randn({4, 2}, float64);
  auto f = [&](Tensor w) { return loss_of(net, w, x, y); };
  Tensor g = vmap(grad(f))(ws);
  for (int64_t i = 0; i < 6; ++i) expect_close(g[i], grad(f)(ws[i]), 1e-10);
}

TEST(Higher, DropoutUnderVmapDrawsForEveryExample) {
  manual_seed(5);
  Tensor x = ones({8, 64});
  Tensor y = vmap([](Tensor r) { return dropout(r, 0.5); })(x);
  EXPECT_FALSE((y[0] == y[1]).all().item<bool>());
  manual_seed(5);
  EXPECT_EQ(y.to_vector<float>(),
            vmap([](Tensor r) { return dropout(r, 0.5); })(x).to_vector<float>());
}

TEST(Higher, CheckpointsNestAndGiveSecondOrder) {
  manual_seed(6);
  Mlp net;
  Tensor x = randn({4, 3}, float64);
  auto inner = [&](Tensor v) { return net(v).square().sum(); };
  auto saved = [&](Tensor v) {
    return checkpoint([&](Tensor u) { return checkpoint(inner, u * 1.0) * 2.0; }, v);
  };
  auto plain = [&](Tensor v) { return inner(v * 1.0) * 2.0; };
  expect_close(grad(saved)(x), grad(plain)(x), 0);
  auto second = [&](auto f) {
    return grad([&](Tensor v) { return grad(f)(v).square().sum(); })(x);
  };
  expect_close(second(saved), second(plain), 1e-12);
}

TEST(Higher, CustomRulesAreUsedAtEveryLevel) {
  // A custom rule for x^3, so that the second derivative comes from the rule's ops.
  auto cube =
      custom_vjp([](std::span<const Tensor> x) { return Tensors{x[0] * x[0] * x[0]}; },
                 [](std::span<const Tensor> x, std::span<const Tensor>, std::span<const Tensor> g) {
                   return Tensors{g[0] * x[0] * x[0] * 3.0};
                 });
  Tensor x = full({}, 2.0, float64);
  auto f = [&](Tensor v) { return cube(v); };
  EXPECT_EQ(grad(f)(x).item<double>(), 12);
  EXPECT_EQ(grad(grad(f))(x).item<double>(), 12);
  Tensor xs = tensor({1.0, 2.0, 3.0}, float64);
  expect_close(vmap(grad(f))(xs), xs.square() * 3.0, 1e-12);
}

TEST(Higher, ThreadsRunWholeModels) {
  manual_seed(7);
  Mlp net;
  Tensor x = randn({16, 3}, float64);
  net(x).square().sum().backward();
  Tensor one = net.a.weight.grad();
  net.zero_grad();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 8; ++k) net(x).square().sum().backward();
    });
  for (std::thread& t : threads) t.join();
  expect_close(net.a.weight.grad(), one * 32.0, 1e-9);
}

TEST(Higher, BackwardOfALeafOfAGradStaysApart) {
  // grad() changes no slot, backward() only those of leaves.
  Mlp net;
  Tensor x = randn({2, 3}, float64).requires_grad_();
  grad(net(x).sum(), x);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(net.a.weight.grad().defined());
  net(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(net.a.weight.grad().defined());
  EXPECT_FALSE(x.grad().requires_grad());
}

}  // namespace
}  // namespace tandem
