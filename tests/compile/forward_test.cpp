// SPDX-License-Identifier: Apache-2.0
// Compiled forward passes below an eager backward pass: first and second derivatives.
#include <gtest/gtest.h>

#include "tests/compile/nets.h"

namespace tandem {
namespace {

using namespace test;

TEST(Compile, ForwardCompiledBackwardEager) {
  Net net, other = clone(net);
  auto f = compile(net);
  for (int i = 0; i < 3; ++i) {
    Tensor x = batch(5, static_cast<uint64_t>(i)).requires_grad_();
    Tensor z = batch(5, static_cast<uint64_t>(i)).requires_grad_();
    cross_entropy(f(x), labels(5)).backward();
    cross_entropy(other(z), labels(5)).backward();
    EXPECT_EQ(values(x.grad()), values(z.grad()));
    EXPECT_EQ(values(net.a.weight.grad()), values(other.a.weight.grad()));
    EXPECT_EQ(values(net.b.bias.grad()), values(other.b.bias.grad()));
  }
  EXPECT_EQ(f.stats().traces, 1);
  // The weights may change between forward and backward: the derivative sees the old ones.
  Tensor x = batch(5).requires_grad_(), z = batch(5).requires_grad_();
  Tensor y = f(x), w = other(z);
  net.b.weight.assign_(0.0);
  other.b.weight.assign_(0.0);
  y.sum().backward();
  w.sum().backward();
  EXPECT_EQ(values(x.grad()), values(z.grad()));
}

TEST(Compile, ForwardCompiledWithStateAndSeveralOutputs) {
  Noisy net, other = clone(net);
  auto both = [](Noisy& n) {
    return [&n](Tensor x) {
      Tensor h = n.bn(n.a(x));
      return std::make_pair(n.b(relu(h)), h.sum());
    };
  };
  auto f = compile(both(net));
  auto g = both(other);
  for (int i = 0; i < 2; ++i) {
    auto [y, s] = f(batch(5));
    auto [v, t] = g(batch(5));
    (y.sum() + s * 2).backward();
    (v.sum() + t * 2).backward();
    EXPECT_EQ(values(net.a.weight.grad()), values(other.a.weight.grad()));
    EXPECT_EQ(values(net.bn.running_mean), values(other.bn.running_mean));
  }
  // One output without a gradient.
  auto [y, s] = f(batch(5));
  y.sum().backward();
  auto [v, t] = g(batch(5));
  v.sum().backward();
  EXPECT_EQ(values(net.a.weight.grad()), values(other.a.weight.grad()));
}

TEST(Compile, ForwardWithManyOutputs) {
  Param w(tensor({0.5, -1.0, 2.0}));
  const auto many = [&](Tensor x) {
    std::vector<Tensor> y;
    for (int i = 0; i < 11; ++i) y.push_back(i == 5 ? Tensor(x > 0) : sin(w * x * (i + 1.0)));
    return y;
  };
  auto f = compile(many);
  const auto gradients = [&](auto& f, int skip) {
    Tensor x = tensor({0.3f, 0.7f, -0.2f}).requires_grad_();
    w.zero_grad();
    std::vector<Tensor> y = f(x);
    Tensor loss = zeros({});
    for (size_t i = 0; i < y.size(); ++i)
      if (i != 5 && i % static_cast<size_t>(skip) == 0)
        loss = loss + (y[i] * static_cast<double>(i + 1)).sum();
    loss.backward({}, true);
    loss.backward();  // twice as much
    return std::vector<Tensor>{loss, x.grad(), w.grad(), y[5]};
  };
  for (int skip : {1, 3, 10}) {
    auto a = gradients(many, skip), b = gradients(f, skip);
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(distance(a[i], b[i]), 1e-6) << skip << " " << i;
    EXPECT_TRUE(same_bits(a[3], b[3]));
  }
  EXPECT_EQ(f.stats().traces, 1);
}

TEST(Compile, SecondDerivativeOfACompiledForward) {
  manual_seed(6);
  Noisy net;
  Param scale(tensor({1.5}));
  const auto body = [&](Tensor x) { return tanh(net.forward(x)) * scale; };
  auto f = compile(body);
  const auto penalty = [&](auto& f) {
    for (auto& [name, p] : net.named_parameters()) p.zero_grad();
    scale.zero_grad();
    manual_seed(12);
    Tensor x = randn({5, 4}).requires_grad_();
    Tensor y = f(x);
    rand({4});  // what is drawn between does not matter
    Tensor g = grad(Tensors{y.sum()}, Tensors{x}, {.create_graph = true})[0];
    Tensor loss = (g * g).sum() + y.sum();
    loss.backward();
    std::vector<Tensor> all{loss, g, x.grad(), scale.grad()};
    for (auto& [name, p] : net.named_parameters()) all.push_back(p.grad());
    return all;
  };
  const StateDict before = net.state_dict();
  const auto a = penalty(body);
  const StateDict once = net.state_dict();
  net.load_state_dict(before);
  const auto b = penalty(f);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      // The gradient of a bias before the normalisation is 0 but for rounding.
      EXPECT_LE((a[i] - b[i]).abs().amax().item<float>(),
                1e-5f * (1 + b[i].abs().amax().item<float>()))
          << i;
    }
  }
  // Statistics move once, not once more with the derivative.
  for (auto& [name, value] : once)
    EXPECT_LE(distance(net.state_dict().at(name), value), 1e-6) << name;
}

}  // namespace
}  // namespace tandem
