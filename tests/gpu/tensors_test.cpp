// SPDX-License-Identifier: Apache-2.0
// Tensors on the devices of the drivers: moving, reading, errors, memory, and training that follows
// the CPU.
#include <chrono>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/graph/backend.h"
#include "tandem/models/text/gpt.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class Tensors : public OverDevices {};
TD_OVER_DEVICES(Tensors);

TEST_P(Tensors, NamesBothWays) {
  const std::string name = std::string(GetParam()) + ":0";
  EXPECT_EQ(to_string(device_), name);
  EXPECT_EQ(device_named(name), device_);
  const std::string error = thrown([&] { device_named(std::string(GetParam()) + ":15"); });
  EXPECT_TRUE(has(error, "there is no device '" + std::string(GetParam()) + ":15'")) << error;
  EXPECT_TRUE(has(error, "This process has cpu")) << error;
}

TEST_P(Tensors, ThereAndBack) {
  for (const Tensor& x : {tensor({1.f, -2.f, 3.5f}), arange(12).reshape({3, 4}).t(), zeros({0, 3}),
                          tensor(2.5), randn({64, 65}), tensor({true, false}), randn({300, 1000}),
                          arange(24).reshape({2, 3, 4}).slice(2, 0, 4, 2)}) {
    const Tensor there = x.to(device_);
    EXPECT_EQ(there.device(), device_);
    EXPECT_TRUE(same_bits(there, x));
    EXPECT_TRUE(same_bits(there.cpu().to(device_), x));
  }
}

// The source of a copy may change as soon as the call returns.
TEST_P(Tensors, CopiesDoNotNeedTheirSource) {
  std::vector<Tensor> all;
  for (int i = 0; i < 40; ++i) {
    Tensor x = full({100, 1000}, static_cast<float>(i));
    all.push_back(x.to(device_));
    x = Tensor();
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].mean().item<float>(), i);
}

TEST_P(Tensors, ReadingAndPrinting) {
  const Tensor x = tensor({{1.f, 2.f}, {3.f, 4.f}}).to(device_);
  EXPECT_EQ(x.t().to_vector<double>(), (std::vector<double>{1, 3, 2, 4}));
  EXPECT_EQ(x.select(0, 1).select(0, 0).item<float>(), 3);
  EXPECT_TRUE(bool(x.amax() > 3));
  EXPECT_EQ(to_string(x.select(0, 0)),
            "tensor([1., 2.], device='" + std::string(GetParam()) + ":0')");
}

// GPT makes its positions in forward.
TEST_P(Tensors, AModuleMakesTensorsWhereItsInputIs) {
  models::GPT net({.vocabulary = 8, .context = 4, .layers = 1, .heads = 1, .width = 8});
  const NoGradGuard no_grad;
  const Tensor ids = tensor({{1, 2, 3}}), want = net(ids);
  net.to(device_);
  const Tensor got = net(ids.to(device_));
  EXPECT_EQ(got.device(), device_);
  EXPECT_TRUE(allclose(got.cpu(), want, 1e-4, 1e-5));
}

TEST_P(Tensors, TwoDevicesInOneOp) {
  const Tensor a = ones({8}), b = ones({8}).to(device_);
  const std::string mixed = thrown([&] { a + b; });
  EXPECT_TRUE(has(mixed, "inputs are on " + to_string(device_) + " and cpu")) << mixed;
  EXPECT_TRUE(has(mixed, "Move them with .to()")) << mixed;
  nn::Linear layer(8, 2);
  layer.to(device_);
  const std::string module = thrown([&] { layer(a.unsqueeze(0)); });
  EXPECT_TRUE(has(module, to_string(device_))) << module;
  EXPECT_TRUE(has(module, "Move them with .to()")) << module;
}

TEST_P(Tensors, AnIndexOutOfRangeIsReported) {
  const Tensor x = ones({4}).to(device_), at = tensor({1, 7}).to(device_);
  const Tensor y = index_select(x, 0, at);
  const std::string read = thrown([&] { y.to_vector<float>(); });
  EXPECT_TRUE(has(read, "index 7 is out of range")) << read;
  EXPECT_EQ(ones({2}).to(device_).sum().item<float>(), 2) << "once";
  const Tensor zero = tensor({1, 0}).to(device_);
  const std::string division = thrown([&] {
    (tensor({4, 4}).to(device_) % zero).to_vector<int64_t>();
  });
  EXPECT_TRUE(has(division, "zero")) << division;
}

TEST_P(Tensors, OutOfMemoryNamesTheHolders) {
  const int64_t free = engine_of(device_).info().bytes;
  const Tensor held = zeros({1000, 1000}).to(device_) + 1;
  const std::string text = thrown(
      [&] {
        const DeviceGuard there(device_);
        (void)zeros({free / 2});
      },
      ErrorKind::Memory);
  EXPECT_TRUE(has(text, "out of memory on " + to_string(device_))) << text;
  EXPECT_TRUE(has(text, "wanted for fill")) << text;
  EXPECT_TRUE(has(text, "Largest holders: ")) << text;
  EXPECT_TRUE(has(text, "to_device 3906.5 KB")) << text;
  EXPECT_EQ(held.sum().item<float>(), 1e6f) << "the device still works";
}

TEST_P(Tensors, MemoryIsGivenBack) {
  Pool& pool = engine_of(device_).pool();
  const int64_t before = pool.stats().allocated, in_use = allocator_stats(device_).in_use;
  {
    const Tensor x = ones({1000}).to(device_);
    EXPECT_EQ(allocator_stats(device_).in_use, in_use + 4000);
    EXPECT_GT(pool.stats().allocated, before);
  }
  EXPECT_EQ(pool.stats().allocated, before);
  EXPECT_EQ(allocator_stats(device_).in_use, in_use);
}

TEST_P(Tensors, HostRunsAreCountedByName) {
  const Tensor x = zeros({2, 2}).to(device_);
  reset_host_runs();
  EXPECT_EQ(linalg::matrix_exp(x).to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
  const HostRuns runs = host_runs();
  ASSERT_EQ(runs.by_op.size(), 1u);
  EXPECT_EQ(runs.by_op[0].first, "matrix_exp");
}

// Reductions long enough for several blocks, in every layout.
TEST_P(Tensors, LargeReductions) {
  const Tensor x = randn({20, 3000});
  const Tensor there = x.to(device_);
  EXPECT_NEAR(there.sum().item<float>(), x.sum().item<float>(), 0.05);
  EXPECT_TRUE(allclose(there.sum({0}).cpu(), x.sum({0}), 1e-4, 1e-4));
  EXPECT_TRUE(allclose(there.sum({1}).cpu(), x.sum({1}), 1e-4, 1e-3));
  EXPECT_TRUE(same_bits(there.argmax(1), x.argmax(1)));
  EXPECT_TRUE(same_bits(there.argmax(), x.argmax()));
  EXPECT_TRUE(same_bits(there.t().amax({1}), x.t().amax({1})));
  EXPECT_TRUE(allclose(there.var({1}).cpu(), x.var({1}), 1e-4, 1e-4));
}

TEST_P(Tensors, LargeProducts) {
  const Tensor a = randn({70, 130}), b = randn({130, 90}), c = randn({3, 130, 20});
  EXPECT_TRUE(allclose(matmul(a.to(device_), b.to(device_)).cpu(), matmul(a, b), 1e-4, 1e-4));
  EXPECT_TRUE(allclose(matmul(a.t().contiguous().to(device_).t(), b.to(device_)).cpu(),
                       matmul(a, b), 1e-4, 1e-4));
  EXPECT_TRUE(allclose(matmul(a.to(device_), c.to(device_)).cpu(), matmul(a, c), 1e-4, 1e-4));
}

// ---- training

struct SmallMlp : nn::Module {
  nn::Linear first{12, 16}, second{16, 4};
  SmallMlp() { TD_REGISTER(first, second); }
  Tensor forward(const Tensor& x) { return second.forward(gelu(first.forward(x))); }
};

struct SmallConvNet : nn::Module {
  nn::Conv2d conv{1, 4, 3};
  nn::BatchNorm2d norm{4};
  nn::Linear head{4 * 3 * 3, 4};
  SmallConvNet() { TD_REGISTER(conv, norm, head); }
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(relu(norm.forward(conv.forward(x.reshape({-1, 1, 8, 8})))), {2});
    return head.forward(h.flatten(1));
  }
};

template <class Net>
std::vector<float> losses_of(tandem::Device device, bool compiled, int64_t features) {
  manual_seed(11);
  Net net;
  net.to(device);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({16, features}).to(device), y = randint(0, 4, {16}).to(device);
  const auto step = [&](const Tensor& in, const Tensor& want) {
    const Tensor loss = cross_entropy(net.forward(in), want);
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(step);
  std::vector<float> losses;
  for (int i = 0; i < 20; ++i) {
    losses.push_back((compiled ? fast(x, y) : step(x, y)).template item<float>());
  }
  return losses;
}

template <class Net>
void expect_same_training(tandem::Device device, int64_t features) {
  for (const bool compiled : {false, true}) {
    const std::vector<float> want = losses_of<Net>(cpu, compiled, features);
    EXPECT_LT(want.back(), want.front());
    reset_host_runs();
    const std::vector<float> got = losses_of<Net>(device, compiled, features);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << "step " << i << " compiled " << compiled;
    }
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
}

TEST_P(Tensors, AnMlpTrainsAsOnTheCpu) { expect_same_training<SmallMlp>(device_, 12); }
TEST_P(Tensors, AConvNetTrainsAsOnTheCpu) { expect_same_training<SmallConvNet>(device_, 64); }

// ---- devices that are not there

TEST(NoDevice, SaysTheDriversReason) {
  init();
  Driver& cuda = cuda_driver();
  int devices = 0;
  const Status status = cuda.count(devices);
  if (status.ok() && devices > 0) GTEST_SKIP() << "there is a GPU";
  const std::string text = thrown([] { (void)zeros({1}).to(tandem::Device{DeviceKind::cuda, 0}); });
  EXPECT_TRUE(has(text, "there is no device")) << text;
  EXPECT_TRUE(has(text, status.text())) << text;
}

TEST(TwoFakeDevices, CopiesAndErrors) {
  init();
  const tandem::Device a = device_named("fake:0"), b = device_named("fake:1");
  const Tensor x = randn({33}), there = x.to(a), other = there.to(b);
  EXPECT_EQ(other.device(), b);
  EXPECT_TRUE(same_bits(other, x));
  const std::string mixed = thrown([&] { there + other; });
  EXPECT_TRUE(has(mixed, "inputs are on fake:0 and fake:1")) << mixed;
}

TEST(FakeTensors, WorkAfterInjectedErrors) {
  init();
  const tandem::Device device = device_named("fake:1");
  auto& context = dynamic_cast<FakeContext&>(engine_of(device).context());
  const Tensor x = ones({8}).to(device), warm = x + x;
  const int64_t before = engine_of(device).pool().stats().allocated;
  for (int i = 0; i < 100; ++i) {
    context.fail_after(i % 2 ? Operation::launch : Operation::copy, i % 3,
                       i % 2 ? Code::launch : Code::driver);
    const std::string text = thrown([&] {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ((x + x).sum().item<float>(), 16);
      }
    });
    EXPECT_TRUE(has(text, "fake:1: injected error")) << text;
  }
  EXPECT_EQ((x + x).sum().item<float>(), 16);
  EXPECT_EQ(engine_of(device).pool().stats().allocated, before);
}

}  // namespace
}  // namespace tandem::gpu
