// SPDX-License-Identifier: Apache-2.0
// Control::eager: functions that branch on values, in segments. The results equal eager's.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "bench/tree_lstm.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

constexpr auto kEager = Control::eager;

TEST(Segments, ReadingAValue) {
  auto body = [](Tensor x) {
    Tensor y = relu(x * 2.0 + 1.0).sum();
    if (y.item<float>() > 10) return y * 0.5;
    return (y + x.sum()) * x;
  };
  auto f = compile(body, {.control = kEager});
  for (double v : {0.1, 3.0, 0.2, 4.0, 0.3, 5.0, 0.4})
    EXPECT_EQ(values(f(full({4}, v))), values(body(full({4}, v)))) << v;
  EXPECT_EQ(f.stats().traces, 0);
  EXPECT_EQ(f.stats().plans, 3);  // before the branch, and each side of it
  EXPECT_EQ(f.stats().segments, 14);
  auto truth = compile([](Tensor x) { return (x > 0).all() ? x : -x; }, {.control = kEager});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(truth(-ones({2}))), (std::vector<float>{1, 1}));
}

TEST(Segments, SizesThatDependOnData) {
  auto body = [](Tensor x) {
    Tensor at = nonzero(x > 0).reshape({-1});
    return index_select(x, 0, at).sum() + masked_select(x, x < 0).prod();
  };
  auto f = compile(body, {.control = kEager});
  for (uint64_t seed = 0; seed < 5; ++seed) {
    manual_seed(seed);
    Tensor x = randn({6});
    EXPECT_EQ(f(x).item<float>(), body(x).item<float>());
  }
}

// A segment may give a view instead of a copy; what fn reads lies as contiguous() has promised.
TEST(Segments, ContiguousValuesLieInOrder) {
  auto body = [](Tensor x) {
    const Tensor y = contiguous(x.t());
    const float* p = y.data<float>();
    return full({3}, p[0] * 100 + p[1] * 10 + p[2]);
  };
  auto f = compile(body, {.control = kEager});
  const Tensor x = tensor({{1.0f, 5.0f}, {2.0f, 6.0f}, {3.0f, 7.0f}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(f(x)), values(body(x))) << i;
}

// ---- early exit

struct Exits : nn::Module {
  nn::Linear a{6, 6}, b{6, 6}, c{6, 3};
  Exits() { TD_REGISTER(a, b, c); }
  Tensor forward(Tensor x) {
    Tensor h = relu(a(x));
    Tensor y = softmax(c(h), -1);
    if (y.amax().item<float>() > 0.5) return y;
    return softmax(c(relu(b(h))), -1);
  }
};
TEST(Segments, EarlyExit) {
  manual_seed(3);
  Exits net;
  auto f = compile(net, {.control = kEager});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    manual_seed(seed);
    Tensor x = randn({1, 6}) * 2.0;
    std::vector<float> a = values(f(x)), b = values(net(x));
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << seed;
  }
}

// ---- a training step whose path depends on values

TEST(Segments, TrainingSteps) {
  manual_seed(3);
  Exits net, other = clone(net);
  optim::AdamW opt(net.parameters(), {.lr = 0.01}), opt2(other.parameters(), {.lr = 0.01});
  auto body = [](Exits& net, optim::AdamW& opt) {
    return [&](Tensor x, Tensor y) {
      opt.zero_grad();
      Tensor loss = nll_loss(log(net(x)), y);
      loss.backward();
      if (loss.item<float>() > 0.2) opt.step();
      return loss;
    };
  };
  auto step = compile(body(net, opt), {.control = kEager});
  auto plain = body(other, opt2);
  for (int i = 0; i < 12; ++i) {
    manual_seed(static_cast<uint64_t>(i % 4));
    Tensor x = randn({1, 6}), y = tensor({i % 3}, DType::i64);
    EXPECT_NEAR(step(x, y).item<float>(), plain(x, y).item<float>(), 1e-5) << i;
  }
  std::vector<float> a = values(net.a.weight), b = values(other.a.weight);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  EXPECT_TRUE(net.a.weight.grad().defined());
  EXPECT_EQ(opt.step_count().item<double>(), opt2.step_count().item<double>());
}

TEST(Segments, BackwardOutside) {
  manual_seed(3);
  Exits net, other = clone(net);
  auto f = compile(net, {.control = kEager});
  for (int i = 0; i < 3; ++i) {
    Tensor x = randn({2, 6});
    net.zero_grad(), other.zero_grad();
    (f(x) * f(x)).sum().backward();
    (other(x) * other(x)).sum().backward();
    std::vector<float> a = values(net.a.weight.grad()), b = values(other.a.weight.grad());
    for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5);
  }
}

TEST(Segments, RandomNumbersAndEffects) {
  int runs = 0;
  auto body = [&](Tensor x) {
    ++runs;
    Tensor a = dropout(x, 0.5, true);
    if (a.sum().item<float>() < 0) a = a * 2;
    return a + rand({8}) + dropout(x, 0.3, true);
  };
  auto f = compile(body, {.control = kEager});
  for (int i = 0; i < 4; ++i) {
    manual_seed(7);
    Tensor a = f(ones({8})), b = randn({2});
    manual_seed(7);
    EXPECT_EQ(values(a), values(body(ones({8}))));
    EXPECT_EQ(values(b), values(randn({2})));
  }
  EXPECT_EQ(runs, 8);
}

TEST(Segments, AnExceptionUndoesAll) {
  Buffer count(zeros({2}));
  Param w(ones({2}));
  auto f = compile(
      [&](Tensor x, bool fail) {
        count.assign_(count + x);
        (w * x).sum().backward();
        EXPECT_EQ(count.value().sum().item<float>() > 0, true);
        count.assign_(count * 2);
        Tensor noise = rand({2});
        if (noise.sum().item<float>() >= 0 && fail) throw std::runtime_error("stop");
        return count.value();
      },
      {.control = kEager});
  GeneratorState before = generator_state();
  for (int i = 0; i < 3; ++i) EXPECT_THROW(f(ones({2}), true), std::runtime_error);
  EXPECT_EQ(values(count), (std::vector<float>{0, 0}));
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(generator_state().offset, before.offset);
  EXPECT_EQ(values(f(ones({2}), false)), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(count), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(w.grad()), (std::vector<float>{1, 1}));
  EXPECT_EQ(generator_state().offset, before.offset + 1);
  // An op's error that is found when its segment runs.
  auto bad = compile(
      [&](Tensor x, Tensor i) {
        count.assign_(count + 1);
        return index_select(x, 0, i).sum().item<float>();
      },
      {.control = kEager});
  EXPECT_THROW(bad(ones({3}), tensor({9}, DType::i64)), Error);
  EXPECT_EQ(values(count), (std::vector<float>{2, 2}));
}

// ---- tree-LSTM over random trees

using bench::Tree;
using bench::TreeLstm;

TEST(Segments, TreeLstm) {
  manual_seed(1);
  TreeLstm net(20, 8, 2), other = clone(net);
  optim::Adam opt(net.parameters(), {.lr = 0.01}), opt2(other.parameters(), {.lr = 0.01});
  const Tree* tree = nullptr;
  auto body = [&](TreeLstm& net, optim::Adam& opt) {
    return [&](int label) {
      opt.zero_grad();
      Tensor loss = net.loss(*tree, label);
      loss.backward();
      opt.step();
      return loss;
    };
  };
  auto step = compile(body(net, opt), {.control = kEager});
  auto plain = body(other, opt2);
  std::mt19937 rng(5);
  std::vector<std::unique_ptr<Tree>> trees;
  for (int i = 0; i < 30; ++i) trees.push_back(bench::random_tree(rng, 1 + i % 7, 20));
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < trees.size(); ++i) {
      tree = trees[i].get();
      const int label = static_cast<int>(i % 2);
      EXPECT_NEAR(step(label).item<float>(), plain(label).item<float>(), 2e-5) << i;
    }
  std::vector<float> a = values(net.gates.weight), b = values(other.gates.weight);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
}

// ---- beam search

TEST(Segments, BeamSearch) {
  manual_seed(4);
  nn::Embedding words(12, 8);
  nn::Linear step_layer(16, 8), out(8, 12);
  const int64_t beam = 3;
  auto search = [&](Tensor h0) {
    Tensor h = expand(h0, {beam, 8}), scores = tensor({0.0f, -1e9f, -1e9f});
    Tensor last = full({beam}, 1, DType::i64);
    std::vector<std::vector<int64_t>> texts(beam);
    for (int t = 0; t < 8; ++t) {
      h = tanh(step_layer(cat({h, words(last)}, 1)));
      Tensor all = log_softmax(out(h), 1) + scores.unsqueeze(1);
      auto [best, at] = topk(all.flatten(), beam);
      scores = best;
      Tensor from = floor_divide(at, 12);
      last = at % 12;
      h = index_select(h, 0, from);
      std::vector<std::vector<int64_t>> next;
      std::vector<int64_t> parents = from.to_vector<int64_t>(), tokens = last.to_vector<int64_t>();
      for (size_t b = 0; b < static_cast<size_t>(beam); ++b) {
        next.push_back(texts[static_cast<size_t>(parents[b])]);
        next.back().push_back(tokens[b]);
      }
      texts = next;
      if (texts[0].back() == 0) break;
    }
    Tensor text = tensor(texts[0]);
    return std::pair(text, scores);
  };
  auto f = compile(search, {.control = kEager});
  NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    manual_seed(seed);
    Tensor h = randn({1, 8});
    auto [a, s] = f(h);
    auto [b, r] = search(h);
    EXPECT_EQ(a.to_vector<int64_t>(), b.to_vector<int64_t>());
    std::vector<float> x = values(s), y = values(r);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5);
  }
  EXPECT_GT(f.stats().plans, 0);
}

TEST(Segments, ControlFlowAndTransformsInside) {
  auto body = [](Tensor x) {
    auto [h, ys] = scan([](Tensor h, Tensor v) { return std::pair(h * v, h + v); }, ones({}), x);
    Tensor g = grad([](Tensor x) { return (x * x * x).sum(); })(x);
    Tensor m = vmap([](Tensor v) { return v * v + 1.0; })(x);
    Tensor w = while_loop([](Tensor v) { return v < 9.0; }, [](Tensor v) { return v * 2; }, h + 1);
    return std::make_tuple(h, ys, g, m, w, checkpoint([](Tensor x) { return sin(x); }, x));
  };
  auto f = compile(body, {.control = kEager});
  for (double v : {1.5, 2.0, 1.5, 2.0}) {
    auto a = body(full({3}, v)), b = f(full({3}, v));
    EXPECT_EQ(values(std::get<0>(a)), values(std::get<0>(b)));
    EXPECT_EQ(values(std::get<1>(a)), values(std::get<1>(b)));
    EXPECT_EQ(values(std::get<2>(a)), values(std::get<2>(b)));
    EXPECT_EQ(values(std::get<3>(a)), values(std::get<3>(b)));
    EXPECT_EQ(values(std::get<4>(a)), values(std::get<4>(b)));
    EXPECT_EQ(values(std::get<5>(a)), values(std::get<5>(b)));
  }
}

TEST(Segments, WhatFnKeepsStaysAValue) {
  std::vector<Tensor> kept;
  Tensor outside = ones({2});
  auto f = compile(
      [&](Tensor x) {
        kept.push_back(x * outside + 1.0);
        return kept.back() * 2.0;
      },
      {.control = kEager});
  for (int i = 0; i < 3; ++i) f(full({2}, static_cast<double>(i)));
  outside = full({2}, 5.0);
  f(ones({2}));
  EXPECT_EQ(values(kept[2]), (std::vector<float>{3, 3}));
  EXPECT_EQ(values(kept[3]), (std::vector<float>{6, 6}));
  EXPECT_EQ(f.stats().plans, 1);
}

// Small ops that are read often: after a trial, calls run op by op. Values, updates, gradients,
// random numbers and what an exception undoes are the same either way.
TEST(Segments, ManyCallsAreEagerInBothWays) {
  manual_seed(3);
  Exits net, other = clone(net);
  optim::AdamW opt(net.parameters(), {.lr = 0.01}), opt2(other.parameters(), {.lr = 0.01});
  Buffer mean(zeros({6, 6})), mean2(zeros({6, 6}));
  bool fail = false;
  auto body = [&fail](Exits& net, optim::AdamW& opt, Buffer& mean) {
    return [&](Tensor x, Tensor y) {
      opt.zero_grad();
      Tensor loss = nll_loss(log(net(x + rand({1, 6}) * 0.1)), y);
      loss.backward();
      if (loss.item<float>() > 0.02) opt.step();
      // Reads what the step has just written, and steps again.
      mean.assign_(mean * 0.9 + net.a.weight * 0.1);
      if (net.b.bias.value().sum().item<float>() > -1e9f) opt.step();
      if (fail) throw std::runtime_error("stop");
      return loss;
    };
  };
  auto step = compile(body(net, opt, mean), {.control = kEager});
  auto plain = body(other, opt2, mean2);
  for (int i = 0; i < 150; ++i) {
    Tensor x = full({1, 6}, 0.1 * (i % 4)), y = tensor({i % 3}, DType::i64);
    fail = i % 40 == 39;
    manual_seed(static_cast<uint64_t>(i));
    if (fail) {
      const StateDict before = net.state_dict();
      const std::vector<float> m = values(mean);
      EXPECT_THROW(step(x, y), std::runtime_error);
      for (auto& [name, value] : net.state_dict()) EXPECT_TRUE(same_bits(value, before.at(name)));
      EXPECT_EQ(values(mean), m);
      continue;
    }
    const Tensor a = step(x, y);
    const Tensor after = rand({1});
    manual_seed(static_cast<uint64_t>(i));
    const Tensor b = plain(x, y);
    EXPECT_TRUE(same_bits(after, rand({1}))) << i;
    EXPECT_NEAR(a.item<float>(), b.item<float>(), 1e-4) << i;
  }
  EXPECT_LE(distance(net.a.weight, other.a.weight), 1e-3);
  EXPECT_LE(distance(mean, mean2), 1e-3);
  EXPECT_EQ(opt.step_count().item<double>(), opt2.step_count().item<double>());
  // Whichever way is faster here, the trial's calls have run op by op.
  EXPECT_LE(step.stats().segments, (150 - 24) * 4);
}

}  // namespace
}  // namespace tandem
