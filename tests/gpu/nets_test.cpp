// SPDX-License-Identifier: Apache-2.0
// Small nets of the usual kinds train on devices as on the CPU: eager, compiled and under autocast,
// with no row on the host.
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"

namespace tandem::gpu {
namespace {

struct SmallBlock : nn::Module {
  nn::LayerNorm norm1{16}, norm2{16};
  nn::Linear qkv{16, 48}, out{16, 16}, up{16, 32}, down{32, 16};
  SmallBlock() { TD_REGISTER(norm1, norm2, qkv, out, up, down); }
  Tensor forward(const Tensor& x) {
    const int64_t b = x.size(0), t = x.size(1);
    std::vector<Tensor> parts = qkv(norm1(x)).split(16, 2);
    for (Tensor& s : parts) s = s.view({b, t, 2, 8}).transpose(1, 2);
    const Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    const Tensor h = x + out(y.transpose(1, 2).contiguous().view({b, t, 16}));
    return h + down(gelu(up(norm2(h))));
  }
};

struct SmallGpt : nn::Module {
  nn::Embedding tokens{20, 16}, places{6, 16};
  SmallBlock block;
  nn::LayerNorm norm{16};
  nn::Linear head{16, 20, {.bias = false}};
  SmallGpt() { TD_REGISTER(tokens, places, block, norm, head); }
  Tensor forward(const Tensor& x) {
    const Tensor h = tokens(x) + places.weight.value().narrow(0, 0, x.size(1));
    return head(norm(block.forward(h))).flatten(0, 1);
  }
  static Tensor input() { return randint(0, 20, {4, 6}); }
  static Tensor target() { return randint(0, 20, {24}); }
};

struct SmallLstm : nn::Module {
  nn::LSTM lstm{5, 8, {.batch_first = true}};
  nn::Linear head{8, 3};
  SmallLstm() { TD_REGISTER(lstm, head); }
  Tensor forward(const Tensor& x) { return head(lstm(x).y.select(1, -1)); }
  static Tensor input() { return randn({6, 4, 5}); }
  static Tensor target() { return randint(0, 3, {6}); }
};

struct SmallResidual : nn::Module {
  nn::Conv2d first{3, 4, 3, {.padding = {1}, .bias = false}},
      second{4, 4, 3, {.padding = {1}, .bias = false}};
  nn::BatchNorm2d norm1{4}, norm2{4};
  nn::Linear head{4, 3};
  SmallResidual() { TD_REGISTER(first, second, norm1, norm2, head); }
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(relu(norm1(first(x))), 2);
    return head(adaptive_avg_pool2d(relu(h + norm2(second(h))), 1).flatten(1));
  }
  static Tensor input() { return randn({4, 3, 6, 6}); }
  static Tensor target() { return randint(0, 3, {4}); }
};

enum class Way { eager, compiled, autocast };

template <class Net>
std::vector<float> net_losses(tandem::Device device, Way way) {
  manual_seed(3);
  Net net;
  net.to(device);
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const Tensor x = Net::input().to(device), y = Net::target().to(device);
  const auto step = [&](const Tensor& in, const Tensor& want) {
    Tensor loss;
    {
      const AutocastGuard cast(bfloat16, way == Way::autocast);
      loss = cross_entropy(net.forward(in).to(float32), want);
    }
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(step);
  std::vector<float> losses;
  for (int i = 0; i < 8; ++i) {
    losses.push_back((way == Way::eager ? step(x, y) : fast(x, y)).template item<float>());
  }
  return losses;
}

// Losses and weights of 20 steps with dropout, Adam and a falling rate; each batch is another one.
template <class Net>
std::vector<Tensor> graph_run(tandem::Device device, bool graphs, bool autocast) {
  const bool before = allow_step_graphs(graphs);
  reset_step_graph_counts();
  manual_seed(8);
  Net net;
  net.to(device);
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  auto step = compile([&](const Tensor& in, const Tensor& want) {
    Tensor loss;
    {
      const AutocastGuard cast(bfloat16, autocast);
      loss = cross_entropy(dropout(net.forward(in).to(float32), 0.2), want);
    }
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  });
  std::vector<Tensor> all;
  for (int i = 0; i < 20; ++i) {
    opt.set_lr(1e-2 / (1 + 0.3 * i));
    all.push_back(step(Net::input().to(device), Net::target().to(device)));
  }
  for (const auto& [name, value] : net.state_dict()) all.push_back(value);
  allow_step_graphs(before);
  return all;
}

class Nets : public OverDevices {
 protected:
  template <class Net>
  void expect_graphs_of_equal_bits() {
    for (const bool autocast : {false, true}) {
      const std::vector<Tensor> want = graph_run<Net>(device_, false, autocast),
                                got = graph_run<Net>(device_, true, autocast);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], want[i])) << "value " << i << " autocast " << autocast;
      }
      const StepGraphCounts counts = step_graph_counts();
      if (engine_of(device_).info().graphs) {
        EXPECT_GE(counts.replays, 15) << counts.last_problem;
      } else {
        EXPECT_EQ(counts.recorded, 0);
      }
    }
  }
  template <class Net>
  void follow() {
    for (const Way way : {Way::eager, Way::compiled, Way::autocast}) {
      const std::vector<float> want = net_losses<Net>(tandem::cpu, way);
      EXPECT_LT(want.back(), want.front());
      reset_host_runs();
      const std::vector<float> got = net_losses<Net>(device_, way);
      const double tolerance = way == Way::autocast ? 2e-2 : 1e-4;
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], tolerance * want[i])
            << "step " << i << " way " << static_cast<int>(way);
      }
      const HostRuns runs = host_runs();
      EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
    }
  }
};
TD_OVER_DEVICES(Nets);

TEST_P(Nets, AGptFollowsTheCpu) { follow<SmallGpt>(); }
TEST_P(Nets, AnLstmFollowsTheCpu) { follow<SmallLstm>(); }
TEST_P(Nets, AResidualNetFollowsTheCpu) { follow<SmallResidual>(); }

TEST_P(Nets, GraphsOfAGptHaveTheBitsOfLaunches) { expect_graphs_of_equal_bits<SmallGpt>(); }
TEST_P(Nets, GraphsOfAnLstmHaveTheBitsOfLaunches) { expect_graphs_of_equal_bits<SmallLstm>(); }
TEST_P(Nets, GraphsOfAResidualNetHaveTheBitsOfLaunches) {
  expect_graphs_of_equal_bits<SmallResidual>();
}

}  // namespace
}  // namespace tandem::gpu
