// SPDX-License-Identifier: Apache-2.0
// Traces: a whole training step as one graph gives eager's bits; rejections; transactions.
#include "tandem/graph/trace.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

struct ConvNet : nn::Module {
  nn::Conv2d conv{1, 4, 3};
  nn::BatchNorm2d bn{4};
  nn::Dropout drop{0.3};
  nn::LayerNorm ln{36};
  nn::Linear fc{36, 5};
  ConvNet() { TD_REGISTER(conv, bn, drop, ln, fc); }
  Tensor forward(Tensor x) {
    x = max_pool2d(relu(bn(conv(x))), 2);
    return fc(ln(drop(x).flatten(1)));
  }
};

struct Log {
  std::vector<float> losses, weight, mean;
};

// Twenty steps from the same seed, eager or through one traced graph.
Log train(bool traced, bool zero_last) {
  manual_seed(11);
  ConvNet net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  Tensor x = randn({6, 1, 8, 8}), y = randint(0, 5, {6});
  auto step = [&](std::span<const Tensor> in) -> std::vector<Tensor> {
    if (!zero_last) opt.zero_grad();
    Tensor loss = cross_entropy(net(in[0]), in[1]);
    loss.backward();
    optim::clip_grad_norm_(opt.params(), 1.0);
    opt.step();
    if (zero_last) opt.zero_grad();
    return {loss};
  };
  Ref<Graph> graph;
  Log r;
  for (int i = 0; i < 20; ++i) {
    if (i == 10) opt.set_lr(2e-3);  // a cell: no new trace
    Tensor in[] = {x, y};
    if (traced && !graph) {
      Spec specs[] = {spec_of(x), spec_of(y)};
      graph = trace(step, specs, Captures::refuse);
    }
    std::vector<Tensor> out = traced ? run(*graph, in) : step(in);
    r.losses.push_back(out[0].item<float>());
  }
  r.weight = net.fc.weight.value().to_vector<float>();
  r.mean = net.bn.running_mean.value().to_vector<float>();
  return r;
}

TEST(Trace, WholeStepEqualsEagerBitForBit) {
  for (bool zero_last : {true, false}) {
    Log eager = train(false, zero_last), traced = train(true, zero_last);
    EXPECT_EQ(eager.losses, traced.losses) << "zero_grad " << (zero_last ? "last" : "first");
    EXPECT_EQ(eager.weight, traced.weight);
    EXPECT_EQ(eager.mean, traced.mean);
    EXPECT_LT(eager.losses.back(), eager.losses.front());
  }
}

TEST(Trace, SymbolicBatchRunsAtAnySize) {
  nn::Linear a(3, 4), b(4, 2);
  auto f = [&](std::span<const Tensor> in) -> std::vector<Tensor> {
    Tensor h = relu(a(in[0]));
    return {b(h).reshape({in[0].shape(0) * 2}), h.mean()};
  };
  Spec spec(float32, {Dim::symbol("batch"), 3});
  Ref<Graph> g = trace(f, {&spec, 1}, Captures::refuse);
  for (int64_t n : {1, 2, 7}) {
    Tensor x = randn({n, 3});
    std::vector<Tensor> got = run(*g, {&x, 1}), want = f({&x, 1});
    EXPECT_EQ(got[0].to_vector<float>(), want[0].to_vector<float>());
    EXPECT_EQ(got[1].item<float>(), want[1].item<float>());
  }
}

TEST(Trace, ReadingAValueThrowsWithTheLine) {
  Spec spec(float32, {2});
  std::string text = thrown([&] {
    trace(
        [](std::span<const Tensor> x) {
          return std::vector<Tensor>{x[0] * x[0].sum().item<float>()};
        },
        {&spec, 1}, Captures::refuse);
  });
  EXPECT_TRUE(has(text, "trace") && has(text, "trace_test.cpp")) << text;
  text = thrown([&] {
    trace(
        [](std::span<const Tensor> x) {
          if (x[0].sum() > 0.0) return std::vector<Tensor>{x[0]};
          return std::vector<Tensor>{-x[0]};
        },
        {&spec, 1}, Captures::refuse);
  });
  EXPECT_TRUE(has(text, "trace")) << text;
}

TEST(Trace, CapturedTensorsAreRefused) {
  Spec spec(float32, {2});
  Tensor outside = ones({2});
  std::string text = thrown([&] {
    trace([&](std::span<const Tensor> x) { return std::vector<Tensor>{x[0] + outside}; },
          {&spec, 1}, Captures::refuse);
  });
  EXPECT_TRUE(has(text, "from outside is used in a traced step")) << text;
  EXPECT_TRUE(has(text, "constant(x)")) << text;
  Ref<Graph> g = trace(
      [&](std::span<const Tensor> x) { return std::vector<Tensor>{x[0] + constant(outside)}; },
      {&spec, 1}, Captures::refuse);
  Tensor x = zeros({2});
  EXPECT_EQ(run(*g, {&x, 1})[0].to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Trace, ValuesDoNotOutliveTheirTrace) {
  Spec spec(float32, {2});
  std::vector<Tensor> kept;
  trace(
      [&](std::span<const Tensor> x) {
        kept.push_back(x[0] * 2.0);
        return std::vector<Tensor>{x[0]};
      },
      {&spec, 1}, Captures::refuse);
  std::string text = thrown([&] { kept[0] + 1.0; });
  EXPECT_TRUE(has(text, "trace that has ended") && has(text, "trace_test.cpp")) << text;
  EXPECT_NO_THROW(to_string(kept[0]));
}

TEST(Trace, AnExceptionLeavesAllAsBefore) {
  Param p{ones({2})};
  GeneratorState before = generator_state();
  Spec spec(float32, {2});
  EXPECT_THROW(trace(
                   [&](std::span<const Tensor> x) -> std::vector<Tensor> {
                     (p.value() * dropout(x[0], 0.5)).sum().backward();
                     p.assign_(zeros({2}));
                     throw std::runtime_error("stop");
                   },
                   {&spec, 1}, Captures::refuse),
               std::runtime_error);
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_FALSE(p.grad().defined());
  EXPECT_EQ(generator_state().offset, before.offset);
  EXPECT_FALSE(is_tracing());
}

TEST(Trace, CellsAreVariables) {
  Param p{full({}, 3.0)};
  Spec spec(float32, {});
  Ref<Graph> g = trace(
      [&](std::span<const Tensor> x) {
        Tensor before = p.value();
        p.assign_(p.value() + x[0]);
        p.assign_(p.value() * 2.0);
        return std::vector<Tensor>{before, p.value()};
      },
      {&spec, 1}, Captures::refuse);
  EXPECT_EQ(p.value().item<float>(), 3.0f);  // tracing ran nothing
  Tensor x = full({}, 1.0);
  std::vector<Tensor> out = run(*g, {&x, 1});
  EXPECT_EQ(out[0].item<float>(), 3.0f);
  EXPECT_EQ(out[1].item<float>(), 8.0f);
  EXPECT_EQ(p.value().item<float>(), 8.0f);
  run(*g, {&x, 1});
  EXPECT_EQ(p.value().item<float>(), 18.0f);
}

TEST(Trace, PrintsOneLinePerNode) {
  Spec spec(float32, {Dim::symbol("n"), 3});
  Ref<Graph> g = trace(
      [](std::span<const Tensor> x) { return std::vector<Tensor>{relu(x[0] + 1.0).sum({1})}; },
      {&spec, 1}, Captures::refuse);
  std::string text = to_string(*g);
  EXPECT_TRUE(has(text, "%1 = add(%0, 1)")) << text;
  EXPECT_TRUE(has(text, "relu(%1)") && has(text, "[n, 3]")) << text;
}

}  // namespace
}  // namespace tandem
