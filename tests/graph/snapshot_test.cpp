// SPDX-License-Identifier: Apache-2.0
// Guarantees of cells across rooms: snapshots and mapped files never change under a step, copies
// share and clones do not, redirected reads, hooks, printing in a trace, layers in errors.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tandem/base/files/file.h"
#include "tandem/graph/trace.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

struct TwoLayers : nn::Module {
  nn::Linear fc1{4, 8}, fc2{8, 2};
  TwoLayers() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(fc1(x))); }
};

std::vector<float> all_values(const StateDict& d) {
  std::vector<float> out;
  for (const auto& [name, t] : d)
    for (float v : t.to_vector<float>()) out.push_back(v);
  return out;
}

void step(TwoLayers& net, optim::Optimizer& opt) {
  opt.zero_grad();
  net(ones({3, 4})).square().sum().backward();
  opt.step();
}

TEST(Snapshot, StateDictStaysAsItWas) {
  TwoLayers net;
  optim::AdamW opt(net.parameters(), {.lr = 0.1});
  step(net, opt);
  StateDict before = net.state_dict(), moments = opt.state_dict();
  std::vector<float> values = all_values(before), m = all_values(moments);
  for (int i = 0; i < 3; ++i) step(net, opt);
  EXPECT_EQ(all_values(before), values);
  EXPECT_EQ(all_values(moments), m);
  EXPECT_NE(all_values(net.state_dict()), values);
  // Restore the snapshot: the next steps are the same bit for bit.
  std::vector<float> after = all_values(net.state_dict());
  net.load_state_dict(before);
  opt.load_state_dict(moments);
  for (int i = 0; i < 3; ++i) step(net, opt);
  EXPECT_EQ(all_values(net.state_dict()), after);
  EXPECT_EQ(all_values(before), values);
}

TEST(Snapshot, MappedWeightsAreNeverWritten) {
  std::string path =
      (std::filesystem::temp_directory_path() / "snapshot_test.safetensors").string();
  TwoLayers net;
  save(net.state_dict(), path);
  std::string bytes = read_file(path);
  {
    TwoLayers other;
    other.load_state_dict(load(path));
    EXPECT_EQ(all_values(other.state_dict()), all_values(net.state_dict()));
    optim::SGD opt(other.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < 3; ++i) step(other, opt);
    EXPECT_NE(all_values(other.state_dict()), all_values(net.state_dict()));
    Param direct(load(path).at("fc1.weight"));
    direct.assign_(0.0);
    Tensor mine = load(path).at("fc1.bias");
    mine.mutable_data<float>()[0] = 7;
  }
  EXPECT_EQ(read_file(path), bytes);
  std::filesystem::remove(path);
}

TEST(Snapshot, CopiesShareAndClonesDoNot) {
  TwoLayers a;
  a.fc1.weight.requires_grad_(false);
  TwoLayers shared = a, own = clone(a);
  optim::SGD opt({a.fc2.weight}, {.lr = 0.5});
  std::vector<float> before = a.fc2.weight.value().to_vector<float>();
  step(a, opt);
  EXPECT_EQ(shared.fc2.weight.value().to_vector<float>(), a.fc2.weight.value().to_vector<float>());
  EXPECT_EQ(own.fc2.weight.value().to_vector<float>(), before);
  EXPECT_FALSE(own.fc1.weight.requires_grad());
  a.eval();
  EXPECT_FALSE(shared.is_training());
  EXPECT_TRUE(own.is_training());
}

TEST(Snapshot, TensorsOnTheTapeSurviveADonation) {
  // The buffer of a temporary may be reused only when no derivative reads it.
  Tensor x = tensor({1.0f, 2.0f, 3.0f}).requires_grad_();
  Tensor y = exp(x * 1.0);
  Tensor z = (std::move(y) * 2.0) * 3.0;
  z.sum().backward();
  std::vector<float> g = x.grad().to_vector<float>();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(g[i], 6 * std::exp(static_cast<double>(i + 1)), 1e-4);
  Tensor a = ones({2, 3}), view = a.t();
  Tensor b = relu(std::move(a) - 3.0);
  EXPECT_EQ(view.to_vector<float>(), std::vector<float>(6, 1));
}

TEST(Snapshot, FunctionalCallRedirectsEveryRead) {
  TwoLayers net;
  Tensor x = randn({3, 4}), other = randn({8, 4});
  Tensor direct = net(x), redirected;
  functional_call({{net.fc1.weight, other}}, [&]() -> Tensors {
    redirected = net(x);
    // They nest; the innermost counts.
    functional_call({{net.fc1.weight, net.fc1.weight.value().detach() * 0.0}}, [&]() -> Tensors {
      EXPECT_EQ(net.fc1.weight.value().sum().item<float>(), 0.0f);
      return {};
    });
    return {};
  });
  Tensor want = net.fc2(relu(linear(x, other, net.fc1.bias)));
  EXPECT_EQ(redirected.to_vector<float>(), want.to_vector<float>());
  EXPECT_EQ(net(x).to_vector<float>(), direct.to_vector<float>());
}

TEST(Snapshot, AssignIfInATraceReadsNothing) {
  TwoLayers eager, traced = clone(eager);
  auto train = [](TwoLayers& net, optim::Optimizer& opt, const Tensor& x,
                  const Tensor& pred) -> Tensor {
    opt.zero_grad();
    Tensor loss = net(x).square().sum();
    loss.backward();
    AssignIf guard(pred);
    opt.step();
    return loss;
  };
  optim::AdamW a(eager.parameters(), {.lr = 0.1}), b(traced.parameters(), {.lr = 0.1});
  Tensor x = randn({3, 4});
  Spec specs[] = {spec_of(x), Spec(boolean, {})};
  Ref<Graph> g =
      trace([&](std::span<const Tensor> in) -> Tensors { return {train(traced, b, in[0], in[1])}; },
            specs, Captures::refuse);
  for (bool yes : {true, false, true, true, false}) {
    Tensor in[] = {x, full({}, yes)};
    float want = train(eager, a, in[0], in[1]).item<float>();
    EXPECT_EQ(run(*g, in)[0].item<float>(), want);
  }
  EXPECT_EQ(all_values(eager.state_dict()), all_values(traced.state_dict()));
  EXPECT_EQ(a.step_count().item<double>(), 3);
}

TEST(Snapshot, GradientsThatOutliveATraceAccumulate) {
  TwoLayers eager, traced = clone(eager);
  Tensor x = randn({3, 4});
  auto twice = [](TwoLayers& net, const Tensor& in) -> Tensors {
    net(in).sum().backward();
    net(in * 2.0).square().sum().backward();
    return {in.sum()};
  };
  twice(eager, x);
  twice(traced, x);
  Spec spec = spec_of(x);
  Ref<Graph> g = trace([&](std::span<const Tensor> in) { return twice(traced, in[0]); }, {&spec, 1},
                       Captures::refuse);
  twice(eager, x);
  run(*g, {&x, 1});
  EXPECT_EQ(eager.fc1.weight.grad().to_vector<float>(),
            traced.fc1.weight.grad().to_vector<float>());
  traced.zero_grad();
  EXPECT_THROW(run(*g, {&x, 1}), Error) << "it was traced with gradients present";
}

TEST(Snapshot, HooksSeeLayersAndMayThrow) {
  struct Stop : OpHook {
    std::vector<std::string> seen;
    void after(const OpDef& op, std::span<const Tensor>) override {
      seen.push_back(current_layer() + ":" + op.name);
      if (seen.size() == 4) throw std::runtime_error("enough");
    }
  } stop;
  TwoLayers net;
  net.parameters();
  Param p{ones({2})};
  p.set_grad(ones({2}));
  optim::SGD opt({p}, {.lr = 1.0});
  Tensor x = ones({1, 4});
  {
    HookGuard hook(stop);
    net(x);  // three ops; the fourth is in the step
    EXPECT_THROW(opt.step(), std::runtime_error);
  }
  ASSERT_GE(stop.seen.size(), 3u);
  EXPECT_EQ(stop.seen[0], "fc1:linear");
  EXPECT_EQ(stop.seen[2], "fc2:linear");
  // The cell has its memory back, whatever the step did before the hook threw.
  EXPECT_EQ(p.value().numel(), 2);
  p.assign_(5.0);
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{5, 5}));
}

TEST(Snapshot, DebugPrintRunsWithTheValues) {
  Tensor x = tensor({1.0f, 2.0f});
  ::testing::internal::CaptureStderr();
  Tensor y = debug_print(x * 3.0, "tripled");
  std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("tripled"), std::string::npos) << text;
  EXPECT_NE(text.find("[3., 6.]"), std::string::npos) << text;
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 6}));
  Spec spec = spec_of(x);
  ::testing::internal::CaptureStderr();
  Ref<Graph> g = trace(
      [](std::span<const Tensor> in) -> Tensors {
        debug_print(in[0], "kept");
        return {in[0] + 1.0};
      },
      {&spec, 1}, Captures::refuse);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("1."), std::string::npos);
  ::testing::internal::CaptureStderr();
  run(*g, {&x, 1});
  text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("kept"), std::string::npos) << "it runs though nobody uses its result";
  // Its derivative passes through.
  Tensor leaf = tensor({1.0f}).requires_grad_();
  ::testing::internal::CaptureStderr();
  (debug_print(leaf) * 2.0).sum().backward();
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(leaf.grad().item<float>(), 2.0f);
}

}  // namespace
}  // namespace tandem
