// SPDX-License-Identifier: Apache-2.0
// What a compiled function may take, return, read and change, and what it rejects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/compile/helpers.h"
#include "tests/compile/nets.h"

namespace tandem {
namespace {

using namespace test;

TEST(Compile, Signatures) {
  auto add = compile([](Tensor x, Tensor y) { return x + y; });
  EXPECT_EQ(values(add(ones({2}), full({2}, 2.0))), (std::vector<float>{3, 3}));
  auto pair = compile([](std::pair<Tensor, int64_t> p, bool twice) {
    Tensor y = p.first * p.second;
    return std::make_tuple(twice ? y * 2 : y, std::vector<Tensor>{p.first, y}, std::string("ok"));
  });
  auto [y, list, text] = pair(std::make_pair(ones({2}), int64_t{3}), true);
  EXPECT_EQ(values(y), (std::vector<float>{6, 6}));
  EXPECT_EQ(values(list.at(1)), (std::vector<float>{3, 3}));
  EXPECT_EQ(text, "ok");
  EXPECT_EQ(values(std::get<0>(pair(std::make_pair(ones({2}), int64_t{4}), false))),
            (std::vector<float>{4, 4}));
  EXPECT_EQ(pair.stats().traces, 2);
  auto optional = compile(
      [](std::optional<Tensor> x, std::array<Tensor, 2> z) { return x ? *x + z[0] : z[1]; });
  EXPECT_EQ(values(optional(std::optional<Tensor>(), std::array{ones({1}), zeros({1})})),
            (std::vector<float>{0}));
  EXPECT_EQ(values(optional(std::optional(ones({1})), std::array{ones({1}), zeros({1})})),
            (std::vector<float>{2}));
}

struct State {
  Tensor h;
  std::vector<Tensor> more;
  int64_t n = 0;
  template <class V>
  void fields(V& v) {
    v("h", h);
    v("more", more);
    v("n", n);
  }
};
TEST(Compile, Structs) {
  auto f = compile([](State s) {
    s.h = s.h * 2 + s.more[0];
    ++s.n;
    return s;
  });
  State s = f(f(State{ones({2}), {ones({2})}, 0}));
  EXPECT_EQ(values(s.h), (std::vector<float>{7, 7}));
  EXPECT_EQ(s.n, 2);
  auto best = compile([](Tensor x) { return topk(x, 2); });
  EXPECT_EQ(values(best(tensor({1.f, 3.f, 2.f})).values), (std::vector<float>{3, 2}));
}

TEST(Compile, ShapesAndSymbols) {
  auto f = compile([](Tensor x) { return (x * 2).sum(); });
  for (int64_t n : {2, 3, 2, 3})
    EXPECT_EQ(f(ones({n})).item<float>(), 2.0f * static_cast<float>(n));
  EXPECT_EQ(f.stats().traces, 2);
  Net net;
  auto g = compile([&](Tensor x) { return net(x).flatten(0, 1); }, {.dynamic = {{0, "batch"}}});
  for (int64_t n : {5, 2, 7, 5}) {
    NoGradGuard no_grad;
    EXPECT_EQ(values(g(batch(n))), values(net(batch(n)).flatten(0, 1))) << n;
  }
  EXPECT_EQ(g.stats().traces, 1);
  EXPECT_EQ(g.stats().plans, 3);
  auto one =
      compile([](Tensor x, Tensor y) { return x.sum() + y.sum(); }, {.dynamic = {{1, 0, "rows"}}});
  EXPECT_EQ(one(ones({2}), ones({3})).item<float>(), 5);
  EXPECT_EQ(one(ones({2}), ones({4})).item<float>(), 6);
  EXPECT_EQ(one.stats().traces, 1);
  EXPECT_EQ(one(ones({3}), ones({4})).item<float>(), 7);
  EXPECT_EQ(one.stats().traces, 2);
}

TEST(Compile, CacheIsBounded) {
  auto f = compile([](Tensor x) { return x + 1; }, {.cache_size = 3});
  for (int64_t n = 1; n < 10; ++n) EXPECT_EQ(f(ones({n})).numel(), n);
  EXPECT_EQ(f.stats().traces, 9);
  EXPECT_EQ(f(ones({9})).numel(), 9);
  EXPECT_EQ(f.stats().traces, 9);
}

template <class Optim, class F>
auto training_step(Net& net, Optim& opt, F order) {
  return [&net, &opt, order](Tensor x, Tensor y) {
    if (order == 0) opt.zero_grad();
    Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt.step();
    if (order == 1) opt.zero_grad();
    return loss;
  };
}

TEST(Compile, LearningRateAndWeightsNeedNoTrace) {
  Net net, other = clone(net), third;
  optim::AdamW opt(net.parameters(), {}), opt2(other.parameters(), {});
  auto body = training_step(net, opt, 0), plain = training_step(other, opt2, 0);
  auto step = compile(body);
  for (int i = 0; i < 6; ++i) {
    if (i == 2) opt.set_lr(0.1), opt2.set_lr(0.1);
    if (i == 4) net.load_state_dict(third.state_dict()), other.load_state_dict(third.state_dict());
    EXPECT_EQ(values(step(batch(6), labels(6))), values(plain(batch(6), labels(6)))) << i;
  }
  EXPECT_EQ(values(net.a.weight), values(other.a.weight));
  EXPECT_EQ(step.stats().traces, 1);
  EXPECT_EQ(step.stats().plans, 1);
}

TEST(Compile, ZeroGradLast) {
  Net net, other = clone(net);
  optim::SGD opt(net.parameters(), {.lr = 0.1}), opt2(other.parameters(), {.lr = 0.1});
  auto step = compile(training_step(net, opt, 1));
  auto plain = training_step(other, opt2, 1);
  for (int i = 0; i < 3; ++i) step(batch(6), labels(6)), plain(batch(6), labels(6));
  EXPECT_EQ(values(net.a.weight), values(other.a.weight));
  EXPECT_FALSE(net.a.weight.grad().defined());
}

TEST(Compile, Accumulation) {
  Net net, other = clone(net);
  optim::SGD opt(net.parameters(), {.lr = 0.1}), opt2(other.parameters(), {.lr = 0.1});
  auto part = [](Net& n) {
    return [&n](Tensor x, Tensor y) {
      Tensor loss = cross_entropy(n(x), y);
      loss.backward();
      return loss;
    };
  };
  auto a = compile(part(net));
  auto update = compile([&] { opt.step(), opt.zero_grad(); });
  auto b = part(other);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2; ++i) {
      a(batch(6, static_cast<uint64_t>(i)), labels(6));
      b(batch(6, static_cast<uint64_t>(i)), labels(6));
      EXPECT_EQ(values(net.b.bias.grad()), values(other.b.bias.grad()));
    }
    update();
    opt2.step(), opt2.zero_grad();
    EXPECT_EQ(values(net.a.weight), values(other.a.weight));
  }
  EXPECT_EQ(a.stats().traces, 2);  // without and with a gradient there
}

TEST(Compile, GradientsThatTheUpdateUsed) {
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  auto body = training_step(net, opt, 0);
  auto step = compile(body);
  step(batch(6), labels(6));
  EXPECT_NE(message([&] { (void)net.a.weight.grad(); }).find("keep_grads"), std::string::npos);
  step(batch(6), labels(6));
  opt.zero_grad();
  EXPECT_FALSE(net.a.weight.grad().defined());
  auto kept = compile(body, {.keep_grads = true});
  Net copy = clone(net);
  optim::SGD opt2(copy.parameters(), {.lr = 0.1});
  kept(batch(6), labels(6));
  training_step(copy, opt2, 0)(batch(6), labels(6));
  EXPECT_EQ(values(net.a.weight.grad()), values(copy.a.weight.grad()));
}

TEST(Compile, SnapshotsAndKeptLosses) {
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  auto step = compile(training_step(net, opt, 0));
  Tensor before = net.a.weight;
  std::vector<float> copy = values(before);
  std::vector<Tensor> losses;
  std::vector<float> at_once;
  for (int i = 0; i < 100; ++i) {
    losses.push_back(step(batch(6), labels(6)));
    at_once.push_back(losses.back().item<float>());
  }
  EXPECT_EQ(values(before), copy);
  EXPECT_NE(values(net.a.weight), copy);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(losses[i].item<float>(), at_once[i]);
  EXPECT_LT(at_once.back(), at_once.front());
}

TEST(Compile, ATraceIsATransaction) {
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  std::vector<float> copy = values(net.a.weight);
  bool fail = true;
  auto step = compile([&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt.step();
    if (fail) throw std::runtime_error("stop");
    return loss;
  });
  GeneratorState state = generator_state();
  EXPECT_THROW(step(batch(6), labels(6)), std::runtime_error);
  EXPECT_EQ(values(net.a.weight), copy);
  EXPECT_FALSE(net.a.weight.grad().defined());
  (void)state;
  fail = false;
  step(batch(6), labels(6));
  EXPECT_NE(values(net.a.weight), copy);
}

TEST(Compile, AWrongLabelChangesNoWeight) {
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  auto step = compile(training_step(net, opt, 0));
  step(batch(3), labels(3));
  std::vector<float> copy = values(net.a.weight);
  std::string text = message([&] { step(batch(3), tensor({0, 1, 7}, DType::i64)); });
  EXPECT_NE(text.find("7"), std::string::npos) << text;
  EXPECT_NE(text.find("cross_entropy"), std::string::npos) << text;
  EXPECT_EQ(values(net.a.weight), copy);
  step(batch(3), labels(3));
}

TEST(Compile, TwoFunctionsOnOneModel) {
  Noisy net, other = clone(net);
  optim::AdamW opt(net.parameters(), {}), opt2(other.parameters(), {});
  auto train = [](Noisy& n, optim::AdamW& o) {
    return [&](Tensor x, Tensor y) {
      o.zero_grad();
      Tensor loss = cross_entropy(n(x), y);
      loss.backward();
      o.step();
      return loss;
    };
  };
  auto step = compile(train(net, opt));
  auto eval = compile([&](Tensor x) { return net(x); });
  auto plain = train(other, opt2);
  for (int i = 0; i < 4; ++i) {
    net.train(), other.train();
    Tensor x = batch(6);
    manual_seed(static_cast<uint64_t>(i));
    step(x, labels(6));
    manual_seed(static_cast<uint64_t>(i));
    plain(x, labels(6));
    net.eval(), other.eval();
    NoGradGuard no_grad;
    EXPECT_EQ(values(eval(x)), values(other(x))) << i;
  }
  EXPECT_EQ(values(net.bn.running_var), values(other.bn.running_var));
  EXPECT_EQ(step.stats().traces, 1);
  EXPECT_EQ(eval.stats().traces, 1);
  net.train();
  manual_seed(5);
  Tensor a = eval(batch(6));
  EXPECT_EQ(eval.stats().traces, 2);  // the mode is a guard
}

TEST(Compile, FreezingRetraces) {
  Net net;
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  auto step = compile(training_step(net, opt, 0));
  step(batch(6), labels(6));
  net.a.weight.requires_grad_(false);
  std::vector<float> copy = values(net.a.weight), bias = values(net.a.bias);
  step(batch(6), labels(6));
  EXPECT_EQ(values(net.a.weight), copy);
  EXPECT_NE(values(net.a.bias), bias);
  EXPECT_EQ(step.stats().traces, 2);
}

TEST(Compile, CellsOfAnotherSpecRetrace) {
  Buffer scale(full({4}, 2.0));
  auto f = compile([&](Tensor x) { return (x * scale).sum(); });
  EXPECT_EQ(f(ones({4})).item<float>(), 8);
  scale.cell()->replace(full({1}, 3.0));
  EXPECT_EQ(f(ones({4})).item<float>(), 12);
  scale.cell()->replace(full({4}, 2.0, DType::f64));
  Tensor wide = f(ones({4}));
  EXPECT_EQ(wide.dtype(), DType::f64);
  EXPECT_EQ(wide.item<double>(), 8);
  EXPECT_EQ(f.stats().traces, 3);
  scale.cell()->replace(full({4}, 5.0));
  EXPECT_EQ(f(ones({4})).item<float>(), 20);
  EXPECT_EQ(f.stats().traces, 3);  // the first trace fits again
}

TEST(Compile, Refusals) {
  Tensor mask = ones({2});
  auto captured = compile([&](Tensor x) { return x * mask; });
  std::string text = message([&] { captured(ones({2})); });
  EXPECT_NE(text.find("constant(x)"), std::string::npos) << text;
  EXPECT_NE(text.find("function_test.cpp"), std::string::npos) << text;
  auto reads = compile([](Tensor x) { return x.sum().item<float>() > 0 ? x : -x; });
  text = message([&] { reads(ones({2})); });
  EXPECT_NE(text.find("function_test.cpp"), std::string::npos) << text;
  EXPECT_NE(text.find("trace"), std::string::npos) << text;
  Tensor leaked;
  auto leaks = compile([&](Tensor x) {
    leaked = x + 1;
    return x;
  });
  leaks(ones({2}));
  text = message([&] { (void)(leaked + 1); });
  EXPECT_NE(text.find("trace that has ended"), std::string::npos) << text;
  EXPECT_THROW(compile([](Tensor x) { return x; }, {.cache_size = 0}), Error);
}

TEST(Compile, DropoutDrawsAsEager) {
  Noisy net;
  auto f = compile([&](Tensor x) { return net.drop(net.drop(x)); });
  Tensor x = ones({64});
  manual_seed(4);
  Tensor a = f(x), b = f(x);
  manual_seed(4);
  Tensor c = net.drop(net.drop(x)), d = net.drop(net.drop(x));
  EXPECT_EQ(values(a), values(c));
  EXPECT_EQ(values(b), values(d));
  EXPECT_NE(values(a), values(b));
}

TEST(Compile, Nested) {
  Net net, other = clone(net);
  optim::SGD opt(net.parameters(), {.lr = 0.5}), opt2(other.parameters(), {.lr = 0.5});
  auto inner = compile(net);
  auto step = compile([&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(inner(x), y);
    loss.backward();
    opt.step();
    return loss;
  });
  auto plain = training_step(other, opt2, 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(values(step(batch(6), labels(6))), values(plain(batch(6), labels(6))));
}

TEST(Compile, AssignIfAndBuffers) {
  Buffer count(zeros({})), kept(zeros({2}));
  auto f = compile([&](Tensor x, Tensor on) {
    AssignIf guard(on);
    count.assign_(count + 1);
    kept.assign_(kept + x);
    return kept.value();
  });
  for (bool on : {true, false, true}) f(ones({2}), tensor(on));
  EXPECT_EQ(count.value().item<float>(), 2);
  EXPECT_EQ(values(kept), (std::vector<float>{2, 2}));
}

TEST(Compile, CellsSwapAndAlias) {
  Buffer a(full({3}, 1.0)), b(full({3}, 2.0));
  auto swap = compile([&] {
    Tensor old = a;
    a.assign_(b.value());
    b.assign_(old);
    return std::vector<Tensor>{a, old, old.slice(0, 1, 3)};
  });
  auto r = swap();
  EXPECT_EQ(values(a), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(values(b), (std::vector<float>{1, 1, 1}));
  r = swap();
  EXPECT_EQ(values(a), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(r[0]), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(r[1]), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(values(r[2]), (std::vector<float>{2, 2}));
  // An argument that is the cell's own value.
  auto add = compile([&](Tensor x) {
    a.assign_(a + x);
    return x * 1.5;
  });
  Tensor own = a;
  EXPECT_EQ(values(add(own)), (std::vector<float>{1.5, 1.5, 1.5}));
  EXPECT_EQ(values(own), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(a), (std::vector<float>{2, 2, 2}));
}

TEST(Compile, OutputsThatAreArguments) {
  auto f = compile([](Tensor x) { return std::vector<Tensor>{x, x.reshape({3, 2}), x}; });
  Tensor x = arange(0, 6, 1).to(DType::f32).reshape({2, 3});
  auto y = f(x);
  EXPECT_EQ(values(y[0]), values(x));
  EXPECT_EQ(values(y[1]), values(x));
  EXPECT_EQ(y[1].size(0), 3);
  EXPECT_EQ(values(f(x.t().contiguous().t())[0]), values(x));
}

TEST(Compile, DataSizedOpsWantASize) {
  auto free = compile([](Tensor x) { return nonzero(x > 0); });
  EXPECT_NE(message([&] { free(ones({2})); }).find("nonzero(x, size, fill)"), std::string::npos);
  auto sized = compile([](Tensor x) { return nonzero(x > 0, 3, 0).sum(); });
  EXPECT_EQ(sized(tensor({1.0, -1.0, 2.0})).item<int64_t>(), 2);
}

TEST(Compile, ManyThreads) {
  Net net;
  auto f = compile([&](Tensor x) { return net(x); });
  NoGradGuard no_grad;
  Tensor x = batch(16);
  std::vector<float> want = values(net(x));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      NoGradGuard quiet;
      for (int i = 0; i < 50; ++i) wrong += values(f(x)) != want;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
  Buffer count(zeros({1024}));
  auto up = compile([&] { count.assign_(count + 1); });
  threads.clear();
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) up();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(values(count), std::vector<float>(1024, 200));
}

TEST(Compile, Autocast) {
  Net net;
  auto f = compile([&](Tensor x) { return net(x); });
  NoGradGuard no_grad;
  Tensor full_precision = f(batch(4));
  AutocastGuard low(DType::bf16);
  Tensor a = f(batch(4)), b = net(batch(4));
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(values(a.to(DType::f32)), values(b.to(DType::f32)));
  EXPECT_EQ(f.stats().traces, 2);
}

// The first op that makes a NaN, with layer and line; nothing is written.
TEST(Compile, AnomalyNamesOpLayerAndLine) {
  struct Risky : nn::Module {
    nn::Linear a{4, 8};
    nn::BatchNorm1d bn{8};
    nn::Linear b{8, 3};
    struct Root : nn::Module {
      Param scale{ones({8})};
      Root() { TD_REGISTER(scale); }
      Tensor forward(Tensor x) { return sqrt(x) * scale + 1.0; }
    } root;
    Risky() { TD_REGISTER(a, bn, b, root); }
    Tensor forward(Tensor x) { return b(root(relu(bn(a(x))) * 0.0)); }
  } net;
  net.parameters();
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  auto step = compile([&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor h = net.forward(x);
    Tensor loss = cross_entropy(log(h * h), y);
    loss.backward();
    opt.step();
    return loss;
  });
  const Tensor x = batch(5), y = labels(5);
  const auto bits = [&] {
    std::vector<Tensor> all;
    for (auto& [name, value] : net.state_dict()) all.push_back(value.clone());
    return all;
  };
  step(x, y);  // compiled and not watched it does not throw
  net.load_state_dict(Risky().state_dict());
  const std::vector<Tensor> before = bits();
  const auto unchanged = [&] {
    const std::vector<Tensor> now = bits();
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(same_bits(now[i], before[i])) << i;
  };
  {
    DetectAnomalyGuard watch;
    // A NaN of the layer `root`.
    net.root.scale.assign_(full({8}, std::nan("")));
    const std::string m = message([&] { step(x, y); });
    EXPECT_NE(m.find("NaN"), std::string::npos) << m;
    EXPECT_NE(m.find("mul"), std::string::npos) << m;
    EXPECT_NE(m.find("In layer root"), std::string::npos) << m;
    EXPECT_NE(m.find("function_test.cpp:"), std::string::npos) << m;
    net.root.scale.assign_(ones({8}));
    unchanged();
    // The forward pass: the logarithm of the loss, outside of all layers.
    net.b.weight.assign_(zeros({3, 8}));
    net.b.bias.assign_(zeros({3}));
    const std::string n = message([&] { step(x, y); });
    EXPECT_NE(n.find("log"), std::string::npos) << n;
    EXPECT_NE(n.find("function_test.cpp:"), std::string::npos) << n;
    EXPECT_EQ(n.find("In layer"), std::string::npos) << n;
  }
  EXPECT_EQ(step.stats().traces, 1);
  EXPECT_EQ(step.stats().calls, 3);
}

TEST(Compile, CellsHaveNames) {
  Net net;
  net.parameters();
  optim::AdamW opt(net.parameters(), {});
  auto step = compile(training_step(net, opt, 0));
  step(batch(3), labels(3));
  const std::string text = step.executable()->program().to_string();
  for (const char* name : {"cell a.weight :", "cell a.weight.exp_avg :", "cell b.bias.exp_avg_sq :",
                           "cell AdamW.options :", "cell AdamW.step :"})
    EXPECT_NE(text.find(name), std::string::npos) << name << "\n" << text;
}

// Concurrent callers of a function that draws: all draws differ.
TEST(Compile, ConcurrentCallersDrawApart) {
  auto f = compile([](Tensor x) { return x + rand({64}); });
  NoGradGuard quiet;
  f(zeros({64}));
  manual_seed(8);
  std::vector<std::vector<float>> seen(4);
  std::vector<std::thread> threads;
  for (auto& own : seen)
    threads.emplace_back([&f, &own] {
      NoGradGuard quiet;
      for (int i = 0; i < 25; ++i) {
        const std::vector<float> v = values(f(zeros({64})));
        own.insert(own.end(), v.begin(), v.begin() + 1);
      }
    });
  for (std::thread& t : threads) t.join();
  std::vector<float> all, want;
  for (auto& own : seen) all.insert(all.end(), own.begin(), own.end());
  manual_seed(8);
  for (int i = 0; i < 100; ++i) want.push_back(values(rand({64}))[0]);
  std::sort(all.begin(), all.end());
  std::sort(want.begin(), want.end());
  EXPECT_EQ(all, want);
}

}  // namespace
}  // namespace tandem
