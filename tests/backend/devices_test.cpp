// SPDX-License-Identifier: Apache-2.0
// Devices beside the CPU, on a backend whose memory the host may not touch: moving and reading
// values, streams, late errors, what the host runs in place of missing kernels, and training.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/backend/guarded_backend_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

using guarded::g_device;

TEST(DeviceNames, BothWays) {
  EXPECT_EQ(to_string(g_device), "guarded:0");
  EXPECT_EQ(device_named("guarded:0"), g_device);
  EXPECT_EQ(device_named("guarded"), g_device);
  EXPECT_EQ(device_named("cpu"), cpu);
  for (const char* name : {"guarded:1", "guarded:", "guarded:x", "gpu", "cpu:1", ""})
    EXPECT_TRUE(
        error_of([&] {
          device_named(name);
        }).starts_with(fmt::format("Value: there is no device '{}'. This process has cpu", name)))
        << name;
}

TEST(DeviceMemoryDeathTest, NobodyElseTouchesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor x = ones({3}).to(g_device);
  EXPECT_DEATH(
      {
        volatile float v = *static_cast<const float*>(x.impl()->data);
        (void)v;
      },
      "");
}

TEST(DeviceMemory, ThereAndBack) {
  for (const Tensor& x :
       {tensor({1.f, -2.f, 3.5f}), arange(12).reshape({3, 4}).t(), zeros({0, 3}), tensor(2.5),
        randn({64, 65}), tensor({true, false}), arange(24).reshape({2, 3, 4}).slice(2, 0, 4, 2),
        tensor({1.f, 2.f}).reshape({2, 1}).expand({2, 3})}) {
    const Tensor there = x.to(g_device);
    EXPECT_EQ(there.device(), g_device);
    EXPECT_TRUE(same_bits(there, x));
    EXPECT_TRUE(same_bits(there.cpu().to(g_device), x));
    EXPECT_EQ(there.to(g_device).impl(), there.impl()) << "it is there already";
  }
}

TEST(DeviceMemory, IsGivenBack) {
  const int before = guarded::blocks();
  const int64_t bytes = allocator_stats(g_device).in_use;
  {
    const Tensor x = ones({100}).to(g_device);
    EXPECT_EQ(guarded::blocks(), before + 1);
    EXPECT_EQ(allocator_stats(g_device).in_use, bytes + 400);
    const Tensor view = x.slice(0, 10, 20);
    EXPECT_EQ(guarded::blocks(), before + 1) << "a view shows the same bytes";
    EXPECT_EQ(view.sum().item<float>(), 10);
  }
  EXPECT_EQ(guarded::blocks(), before);
  EXPECT_EQ(allocator_stats(g_device).in_use, bytes);
}

TEST(DeviceMemory, ReadingValues) {
  const Tensor x = tensor({{1.f, 2.f}, {3.f, 4.f}}).to(g_device);
  EXPECT_EQ(x.t().to_vector<double>(), (std::vector<double>{1, 3, 2, 4}));
  EXPECT_EQ(x.select(0, 1).select(0, 0).item<float>(), 3);
  EXPECT_TRUE(bool(x.amax() > 3));
  EXPECT_EQ(to_string(x.select(0, 0)), "tensor([1., 2.], device='guarded:0')");
  EXPECT_TRUE(
      error_of([&] { x.data<float>(); })
          .starts_with("Device: data: requires memory that the host may read, the tensor is "
                       "on guarded:0."));
  Tensor y = x;
  EXPECT_TRUE(error_of([&] { y.mutable_data<float>(); }).starts_with("Device: data: "));
}

TEST(DeviceMemory, SavedAndLoaded) {
  const std::string path = ::testing::TempDir() + "devices.safetensors";
  const Tensor x = randn({5, 7});
  StateDict d;
  d["x"] = x.to(g_device);
  d["turned"] = x.to(g_device).t();
  save(d, path);
  const StateDict back = load(path);
  EXPECT_TRUE(same_bits(back.at("x"), x));
  EXPECT_TRUE(same_bits(back.at("turned"), x.t()));
  std::filesystem::remove(path);
}

TEST(DeviceOps, InputsOnTwoDevices) {
  const Tensor a = ones({8}), b = ones({8}).to(g_device);
  const std::string mixed = error_of([&] { a + b; });
  EXPECT_TRUE(mixed.starts_with("Device: add: inputs are on guarded:0 and cpu.")) << mixed;
  EXPECT_TRUE(mixed.ends_with("Move them with .to().")) << mixed;
  EXPECT_EQ((a.to(g_device) + b).sum().item<float>(), 16) << "what the error says helps";
  const Tensor number = tensor(2.f);
  EXPECT_EQ((number * b).device(), g_device) << "a number in a tensor goes where the others are";
  EXPECT_EQ((b * number).sum().item<float>(), 16);
}

TEST(DeviceOps, MadeFromNothing) {
  manual_seed(3);
  const Tensor want = randn({4, 4});
  const DeviceGuard there(g_device);
  manual_seed(3);
  const Tensor got = randn({4, 4});
  EXPECT_EQ(got.device(), g_device);
  EXPECT_TRUE(same_bits(got, want));
  for (const Tensor& t : {zeros({2}), tensor({1, 2}), eye(3), empty({2}), arange(3)})
    EXPECT_EQ(t.device(), g_device);
  const DeviceGuard back(cpu);
  EXPECT_EQ(zeros({2}).device(), cpu);
  EXPECT_EQ(zeros_like(got).device(), g_device);
}

TEST(DeviceOps, GradientsCross) {
  Tensor x = tensor({1.f, 2.f}).requires_grad_();
  const Tensor y = x.to(g_device);
  (y * y).sum().cpu().backward();
  EXPECT_EQ(x.grad().device(), cpu);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(DeviceOps, KernelsSeeTheStream) {
  int queue = 0;
  const StreamGuard other(g_device, {&queue});
  const Tensor x = ones({4}).to(g_device);
  guarded::reset_work();
  (void)(x + x);
  EXPECT_EQ(guarded::work().kernels, 1);
  EXPECT_EQ(guarded::work().stream.handle, &queue);
  auto f = compile([](const Tensor& v) { return v + v; });
  {
    const StreamGuard own(g_device, {});
    f(x);
  }
  EXPECT_EQ(guarded::work().stream.handle, nullptr);
  f(x);
  EXPECT_EQ(guarded::work().stream.handle, &queue);
}

TEST(DeviceOps, ErrorsAreReadLater) {
  const Tensor x = ones({4}).to(g_device), at = tensor({1, 7}).to(g_device);
  Tensor y;
  const int line = __LINE__ + 1;
  y = index_select(x, 0, at);  // no error yet: nobody has looked
  const std::string read = error_of([&] { y.to_vector<float>(); });
  EXPECT_TRUE(read.starts_with("Index: index: index 7 is out of range")) << read;
  EXPECT_NE(read.find(fmt::format("devices_test.cpp:{}", line)), std::string::npos) << read;
  EXPECT_EQ(error_of([&] { y.to_vector<float>(); }), "no error") << "once";
  index_select(x, 0, at);
  EXPECT_TRUE(error_of([&] { synchronize(g_device); }).starts_with("Index: "));
  auto f = compile([](const Tensor& a, const Tensor& i) { return index_select(a, 0, i); });
  y = f(x, at);
  EXPECT_TRUE(error_of([&] { synchronize(g_device); }).starts_with("Index: "));
}

// ---- what the host runs

TEST(HostRunsTest, CountedAndShown) {
  const Tensor x = randn({8, 8}).to(g_device);
  reset_host_runs();
  (void)(x + x);
  (void)matmul(x, x);
  EXPECT_EQ(host_runs().calls, 0) << "the backend has kernels for these";
  ProfilerGuard profiler;
  (void)exp(x);
  (void)exp(x);
  (void)sum(x);
  const HostRuns runs = host_runs();
  EXPECT_EQ(runs.calls, 3);
  EXPECT_EQ(runs.bytes, 2 * 2 * 256 + 256 + 4);
  ASSERT_EQ(runs.by_op.size(), 2u);
  EXPECT_EQ(runs.by_op[0], (std::pair<std::string, int64_t>{"exp", 2}));
  EXPECT_NE(profiler.profile().table().find("exp (on the host)"), std::string::npos)
      << profiler.profile().table();
  auto f = compile([](const Tensor& v) { return exp(v); });
  reset_host_runs();
  f(x);
  EXPECT_EQ(host_runs().calls, 1);
  EXPECT_EQ(profiler.profile().events.back().name, "exp (on the host)");
}

TEST(HostRunsTest, CanBeAnError) {
  const Tensor x = ones({2}).to(g_device);
  ASSERT_TRUE(allow_host_runs(false));
  const std::string eager = error_of([&] { (void)exp(x); });
  auto f = compile([](const Tensor& v) { return exp(v); });
  const std::string compiled = error_of([&] { f(x); });
  EXPECT_EQ((x + x).device(), g_device) << "add has a kernel";
  allow_host_runs(true);
  for (const std::string& text : {eager, compiled})
    EXPECT_TRUE(text.starts_with("Unsupported: exp: guarded:0 has no kernel for these inputs"))
        << text;
}

// ---- training

struct Mlp : nn::Module {
  nn::Linear first{12, 16}, second{16, 4};
  Mlp() { TD_REGISTER(first, second); }
  Tensor forward(const Tensor& x) { return second.forward(gelu(first.forward(x))); }
};

struct Trained {
  std::vector<float> losses;
  StateDict state, optimizer;
};

// A few steps of an MLP: the model made on the CPU and moved, or made on the device.
Trained train(Device device, bool compiled, bool made_there) {
  manual_seed(11);
  std::optional<DeviceGuard> there;
  if (made_there) there.emplace(device);
  Mlp net;
  if (!made_there) net.to(device);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({32, 12}).to(device), y = randint(0, 4, {32}).to(device);
  const auto step = [&](const Tensor& in, const Tensor& label) {
    opt.zero_grad();
    const Tensor loss = cross_entropy(net.forward(in), label);
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(step);
  Trained run;
  for (int i = 0; i < 6; ++i) {
    if (i == 3) opt.set_lr(5e-3);
    run.losses.push_back((compiled ? fast(x, y) : step(x, y)).item<float>());
  }
  run.state = net.state_dict();
  run.optimizer = opt.state_dict();
  return run;
}

TEST(DeviceTraining, HasTheBitsOfTheCpu) {
  for (const bool compiled : {false, true}) {
    const Trained want = train(cpu, compiled, false);
    EXPECT_LT(want.losses.back(), want.losses.front());
    for (const bool made_there : {false, true}) {
      const Trained got = train(g_device, compiled, made_there);
      EXPECT_EQ(got.losses, want.losses) << "compiled " << compiled << made_there;
      for (const auto& [name, v] : want.state) {
        EXPECT_EQ(got.state.at(name).device(), g_device) << name;
        EXPECT_TRUE(same_bits(got.state.at(name), v)) << name << compiled << made_there;
      }
      for (const auto& [name, v] : want.optimizer)
        EXPECT_TRUE(same_bits(got.optimizer.at(name), v)) << name << compiled << made_there;
    }
  }
}

// Composites as their bodies, and fused loops on the device: sums in another order.
TEST(DeviceTraining, BodiesAndLoops) {
  for (const bool compiled : {false, true}) {
    const Trained want = train(cpu, compiled, false),
                  got = train(guarded::plain_device(), compiled, true);
    for (size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4) << "compiled " << compiled;
  }
  const Tensor x = randn({16, 8}).to(guarded::plain_device());
  auto f = compile([](const Tensor& v) { return tanh(v * 2 + 1) * v; });
  guarded::reset_work();
  reset_host_runs();
  const Tensor y = f(x);
  EXPECT_EQ(guarded::work().kernels, 1) << "one loop";
  EXPECT_EQ(host_runs().calls, 0);
  EXPECT_TRUE(same_bits(y, f(x.cpu())));
}

TEST(DeviceTraining, StateGoesBetweenDevices) {
  Mlp here, there;
  there.to(g_device);
  there.load_state_dict(here.state_dict());
  EXPECT_EQ(there.first.weight.device(), g_device) << "a cell stays where it is";
  EXPECT_TRUE(same_bits(there.first.weight, here.first.weight));
  here.load_state_dict(there.state_dict());
  EXPECT_EQ(here.first.weight.device(), cpu);
}

// A function over both: it runs on the device, and what was on the host comes in and goes back.
TEST(DeviceCompile, OneProgramPerDevice) {
  const Tensor x = randn({6, 6}), w = randn({6, 6}).to(g_device);
  int traces = 0;
  auto f = compile([&](const Tensor& a, const Tensor& b) {
    ++traces;
    const Tensor y = matmul(a.to(g_device), b);
    return std::vector<Tensor>{y, y.cpu() + 1.0};
  });
  const std::vector<Tensor> got = f(x, w);
  EXPECT_EQ(got[0].device(), g_device);
  EXPECT_EQ(got[1].device(), cpu);
  EXPECT_TRUE(same_bits(got[0], matmul(x, w.cpu())));
  EXPECT_TRUE(same_bits(got[1], matmul(x, w.cpu()) + 1.0));
  auto g = compile([&](const Tensor& a) {
    ++traces;
    return a * 2;
  });
  traces = 0;
  EXPECT_EQ(g(x).device(), cpu);
  EXPECT_EQ(g(x.to(g_device)).device(), g_device);
  EXPECT_EQ(traces, 2) << "one specialisation for each device";
}

}  // namespace
}  // namespace tandem
