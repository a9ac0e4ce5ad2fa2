// SPDX-License-Identifier: Apache-2.0
// Data parallel training of nets on devices: each rank drives one, the exchange goes through the
// host. What the host alone computes, and the same bits on both ranks.
#include <gtest/gtest.h>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/process_group.h"
#include "tandem/dist/rank_device.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/mock_nccl_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

struct SmallConv : nn::Module {
  nn::Conv2d conv{1, 4, {3, 3}};
  nn::BatchNorm2d norm{4};
  nn::Linear out{16, 5}, spare{3, 3};  // the last one is not used
  SmallConv() { TD_REGISTER(conv, norm, out, spare); }
  Tensor forward(Tensor x) { return out(max_pool2d(relu(norm(conv(x))), {2, 2}).flatten(1)); }
};

struct Seen {
  std::vector<float> losses;
  StateDict state;
};
// Four steps of two ranks, of which rank 0 tells; `kind` "" is the host.
Seen train_on(const std::string& kind, bool compiled, int64_t shards) {
  Seen seen;
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(8);
    SmallConv net;
    const Device device = kind.empty() ? cpu : *device_for(kind, e->rank());
    net.to(device);
    DataParallel model(net, {.bucket_cap_mb = 0.0002, .first_bucket_mb = 0.0002, .shards = shards},
                       e);
    optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    const auto step = [&](Tensor x, Tensor y) {
      opt.zero_grad();
      Tensor loss;
      if (shards > 0) {
        loss = model.sharded_backward(8, [&](int64_t from, int64_t to) {
          return cross_entropy(model(x.narrow(0, from, to - from)), y.narrow(0, from, to - from));
        });
      } else {
        loss = cross_entropy(model(x), y);
        loss.backward();
      }
      opt.step();
      return loss;
    };
    auto program = compile(step);
    for (int k = 0; k < 4; ++k) {
      const GeneratorGuard random({static_cast<uint64_t>(90 + k * 2 + e->rank()), 0});
      const Tensor x = randn({8, 1, 6, 6}).to(device), y = randint(0, 5, {8}).to(device);
      const Tensor loss = compiled ? program(x, y) : step(x, y);
      if (e->rank() == 0) seen.losses.push_back(loss.cpu().to(DType::f32).item<float>());
    }
    EXPECT_FALSE(net.spare.weight.grad().defined());
    for (const auto& [name, value] : net.state_dict()) {
      const Tensor all = all_gather(value.cpu(), e);
      if (!has(name, "running") && !has(name, "num_batches")) {
        EXPECT_TRUE(same_bits(all.select(0, 0), all.select(0, 1))) << name;
      }
      if (e->rank() == 0) seen.state[name] = value.cpu().clone();
    }
  });
  return seen;
}

class DeviceRanks : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Drivers, DeviceRanks, testing::Values("cuda", "opencl", "fake"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DeviceRanks, TrainAsOnTheHost) {
  if (!device_for(GetParam(), 0)) GTEST_SKIP() << "there is no device " << GetParam();
  for (const int64_t shards : {0, 4})
    for (const bool compiled : {false, true}) {
      if (shards > 0 && compiled) continue;
      SCOPED_TRACE(fmt::format("compiled {}, {} shards", compiled, shards));
      const Seen want = train_on("", compiled, shards),
                 got = train_on(GetParam(), compiled, shards);
      ASSERT_EQ(got.losses.size(), want.losses.size());
      for (size_t k = 0; k < want.losses.size(); ++k)
        EXPECT_NEAR(got.losses[k], want.losses[k], 1e-4) << k;
      for (const auto& [name, value] : want.state)
        EXPECT_TRUE(allclose(got.state.at(name), value, 1e-3, 1e-4)) << name;
    }
}

TEST_P(DeviceRanks, CallsOfTensorsOnDevices) {
  if (!device_for(GetParam(), 0)) GTEST_SKIP() << "there is no device " << GetParam();
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    const Device device = *device_for(GetParam(), e->rank());
    const Tensor x = full({3}, e->rank() + 1.0).to(device);
    const Tensor sum = all_reduce(x, ReduceOp::sum, e), all = all_gather(x, e);
    EXPECT_EQ(sum.device(), device);
    EXPECT_TRUE(equal(sum.cpu(), full({3}, 3.0)));
    EXPECT_TRUE(equal(all.cpu(), tensor({1.0F, 2.0F}).unsqueeze(1).expand({2, 3})));
    EXPECT_TRUE(equal(broadcast(x, 1, e).cpu(), full({3}, 2.0)));
  });
}

TEST_P(DeviceRanks, WhatIsRefused) {
  if (!device_for(GetParam(), 0)) GTEST_SKIP() << "there is no device " << GetParam();
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    SmallConv net;
    net.out.to(*device_for(GetParam(), 0));
    EXPECT_TRUE(has(thrown([&] { DataParallel m(net, {}, e); }, ErrorKind::Unsupported),
                    "on one device, 'conv.weight' is on cpu"));
  });
}

// ---- NCCL: the mock of tests/gpu/mock over two fake devices

TEST_F(OnMockNccl, StepsStayOnTheirDevices) {
  for (const bool compiled : {false, true}) {
    SCOPED_TRACE(compiled);
    const Seen want = train_on("", compiled, 0);
    reset_host_runs();
    const Seen got = train_on("fake", compiled, 0);
    EXPECT_GE(new_runs(), 4 * 2) << "two buckets in each of four steps";
    const HostRuns runs = host_runs();
    for (const auto& [op, calls] : runs.by_op) EXPECT_FALSE(has(op, "reduce")) << op << calls;
    ASSERT_EQ(got.losses.size(), want.losses.size());
    for (size_t k = 0; k < want.losses.size(); ++k)
      EXPECT_NEAR(got.losses[k], want.losses[k], 1e-4) << k;
    for (const auto& [name, value] : want.state)
      EXPECT_TRUE(allclose(got.state.at(name), value, 1e-3, 1e-4)) << name;
  }
  // Virtual shards need the tree's order, which is the host's.
  (void)train_on("fake", false, 4);
  EXPECT_EQ(new_runs(), 0);
}

TEST_F(OnMockNccl, Calls) {
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    const Device device = *device_for("fake", e->rank());
    for (const DType t :
         {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32}) {
      const Tensor x = (arange(6).reshape({2, 3}) + e->rank()).to(t), there = x.to(device);
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
        EXPECT_TRUE(equal(all_reduce(there, op, e).cpu(), all_reduce(x, op, e))) << to_string(t);
        EXPECT_TRUE(equal(reduce_scatter(there, op, e).cpu(), reduce_scatter(x, op, e)));
      }
      EXPECT_TRUE(equal(all_gather(there, e).cpu(), all_gather(x, e)));
      EXPECT_TRUE(equal(broadcast(there, 1, e).cpu(), broadcast(x, 1, e)));
      EXPECT_TRUE(equal(all_reduce(there.t(), ReduceOp::sum, e).cpu(),
                        all_reduce(x.t(), ReduceOp::sum, e)));
    }
    const Tensor truths = (arange(4) > e->rank()).to(device);  // none of its dtypes: by the host
    EXPECT_EQ(all_gather(truths, e).device(), device);
  });
  // Minima and maxima of floats are the host's: libraries disagree about NaN.
  EXPECT_EQ(new_runs(), 4 * 5 + 2 * 9);
}

TEST_F(OnMockNccl, CallsThatDisagreeFailOnAllRanks) {
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    const Tensor x = ones({e->rank() + 2}).to(*device_for("fake", e->rank()));
    const std::string text = thrown([&] { all_reduce(x, ReduceOp::sum, e); }, ErrorKind::Device);
    EXPECT_TRUE(has(text, "ncclAllReduce: invalid argument")) << text;
  });
}

TEST_F(OnMockNccl, WhereRanksCannotJoinTheHostCarries) {
  function<void(const char*, int)>("mock_nccl_fail")("join", 4);
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    const Tensor x = full({3}, e->rank() + 1.0).to(*device_for("fake", e->rank()));
    EXPECT_TRUE(equal(all_reduce(x, ReduceOp::sum, e).cpu(), full({3}, 3.0)));
  });
  EXPECT_EQ(new_runs(), 0);
}

TEST(DevicesOfRanks, NamesWithoutANumberMeanTheRanksOwn) {
  const Place second{.rank = 1, .size = 2, .local_rank = 1, .local_size = 2};
  EXPECT_EQ(to_string(device_of_rank("fake", second)), "fake:1");
  EXPECT_EQ(to_string(device_of_rank("fake:0", second)), "fake:0");
  EXPECT_EQ(to_string(device_of_rank("fake", Place{})), "fake:0");
  EXPECT_EQ(device_of_rank("cpu", second), cpu);
  const Place tenth{.rank = 9, .size = 10, .local_rank = 9, .local_size = 10};
  EXPECT_TRUE(has(thrown([&] { device_of_rank("fake", tenth); }, ErrorKind::Value),
                  "rank 9 of the 10 on this machine means fake:9 by 'fake'"));
}

}  // namespace
}  // namespace tandem::distributed
