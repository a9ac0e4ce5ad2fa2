// SPDX-License-Identifier: Apache-2.0
// Sharded parameters of nets on devices, and optimizers whose state stays on the host: the values
// of the host's runs, by the devices' library and through the host; what lies in a device's memory;
// states that resume anywhere.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/grad/transforms.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/tensor/device_memory.h"
#include "tests/dist/mock_nccl_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

constexpr int64_t kRows = 32;
/// Layers that pass by at most: of parameters and gradients, of gradients alone.
constexpr double kPeakUnits = 4, kPeakGradients = 2;
constexpr Sharding kEach[] = {Sharding::zero1, Sharding::zero2, Sharding::zero3};
/// Offloaded, compiled.
constexpr std::pair<bool, bool> kWays[] = {{false, false}, {false, true}, {true, false}};

/// Units of one layer and of two; a batch norm's buffers; a layer that is not used.
struct ShardedNet : nn::Module {
  nn::Linear first{12, 21, {.bias = false}}, second{21, 7}, out{7, 5}, spare{3, 3};
  nn::BatchNorm1d norm{21};
  bool recomputes = false;
  ShardedNet() { TD_REGISTER(first, second, out, spare, norm); }
  Tensor forward(Tensor x) {
    const auto inner = [&](const Tensor& h) { return tanh(second(relu(norm(h)))); };
    const Tensor h = first(x);
    return out(recomputes ? checkpoint(inner, h) : inner(h));
  }
};

/// How a run is made; device "" is the host.
struct How {
  std::string device;
  int ranks = 2;
  Sharding sharding = Sharding::none;
  bool offload = false;
  int64_t shards = 0;
  double clip = 0;
  bool recomputes = false, compiled = false;
  int from = 0, to = 6;
};
std::string named(const How& h) {
  return fmt::format("'{}', {} ranks, zero{}{}{}{}{}", h.device, h.ranks,
                     static_cast<int>(h.sharding), h.offload ? ", offload" : "",
                     h.recomputes ? ", recompute" : "", h.shards ? ", shards" : "",
                     h.compiled ? ", compiled" : "");
}
struct Outcome {
  std::vector<double> losses;
  StateDict state, moments;
};
using Begin = std::function<void(nn::Module&, DataParallel&, optim::Optimizer&)>;

Tensor rows_of_rank(const Tensor& x, const Engine& e) {
  const int64_t rows = x.size(0) / e.size();
  return narrow(x, 0, e.rank() * rows, rows);
}

Device place_of_rank(const How& how, int rank) {
  return how.device.empty() ? cpu : *device_for(how.device, rank);
}

StateDict on_host(const StateDict& state) {
  StateDict out;
  for (const auto& [name, v] : state) out[name] = v.cpu().clone();
  return out;
}

// Steps [from, to) as one rank makes them. `see` is asked before the first one.
Outcome train_rank(const How& how, const std::shared_ptr<Engine>& e, const Begin& begin) {
  manual_seed(static_cast<uint64_t>(5 + how.from));
  const Device device = place_of_rank(how, e->rank());
  ShardedNet net;
  net.recomputes = how.recomputes;
  net.to(device);
  DataParallel model(net,
                     {.bucket_cap_mb = 0.0012,
                      .first_bucket_mb = 0.0002,
                      .shards = how.shards,
                      .sync_batchnorm = how.shards == 0,
                      .sharding = how.sharding,
                      .offload_optimizer = how.offload},
                     e);
  optim::AdamW opt(model.parameters(), {.lr = 3e-3, .eps = 1e-4});
  if (begin) begin(net, model, opt);
  const DeviceGuard there(device);
  const auto whole_step = [&](Tensor x, Tensor y) {
    opt.zero_grad();
    const Tensor l = cross_entropy(model(x), y);
    l.backward();
    if (how.clip > 0) model.clip_grad_norm_(how.clip);
    opt.step();
    return l;
  };
  auto program = compile(whole_step);
  Outcome result;
  for (int step = how.from; step < how.to; ++step) {
    Tensor x, y;
    {
      const DeviceGuard here(cpu);
      const GeneratorGuard random({77, static_cast<uint64_t>(step) * 8});
      x = rows_of_rank(randn({kRows, 12}), *e).to(device);
      y = rows_of_rank(randint(0, 5, {kRows}), *e).to(device);
    }
    Tensor l;
    if (how.shards > 0) {
      opt.zero_grad();
      l = model.sharded_backward(x.size(0), [&](int64_t b, int64_t end) {
        return cross_entropy(model(narrow(x, 0, b, end - b)), narrow(y, 0, b, end - b));
      });
      opt.step();
    } else {
      l = how.compiled ? program(x, y) : whole_step(x, y);
    }
    double sum = l.cpu().to(DType::f64).item<double>();
    e->all_reduce({&sum, 1, DType::f64}).wait();
    result.losses.push_back(sum / e->size());
  }
  const Device home = how.offload ? cpu : device;
  for (const Param& p : model.parameters()) EXPECT_EQ(p.value().device(), home) << p.name();
  for (const auto& [name, v] : opt.state_dict())
    if (has(name, "exp_avg")) EXPECT_EQ(v.device(), home) << name;
  result.state = on_host(model.state_dict());
  result.moments = on_host(model.optim_state_dict(opt));
  for (const Param& p : net.parameters()) EXPECT_EQ(p.value().device(), device);
  return result;
}

Outcome train(const How& how, const Begin& begin = {}) {
  Outcome result;
  run_ranks(how.ranks, [&](const std::shared_ptr<Engine>& e) {
    Outcome own = train_rank(how, e, begin);
    if (e->rank() == 0) result = std::move(own);
  });
  return result;
}

void expect_same(const Outcome& got, const Outcome& want, double by, const std::string& what) {
  ASSERT_EQ(got.losses.size(), want.losses.size()) << what;
  for (size_t k = 0; k < want.losses.size(); ++k)
    EXPECT_NEAR(got.losses[k], want.losses[k], by) << what << ", step " << k;
  ASSERT_EQ(got.state.size(), want.state.size()) << what;
  for (const auto& [name, v] : want.state)
    EXPECT_TRUE(allclose(got.state.at(name), v, 0, by)) << name << ", " << what;
  ASSERT_EQ(got.moments.size(), want.moments.size()) << what;
  for (const auto& [name, v] : want.moments) {
    EXPECT_EQ(got.moments.at(name).shape(), v.shape()) << name << ", " << what;
    EXPECT_TRUE(allclose(got.moments.at(name), v, 0, by)) << name << ", " << what;
  }
}

class ShardedOn : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!device_for(GetParam(), 0)) GTEST_SKIP() << "there is no device " << GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(Drivers, ShardedOn, testing::Values("cuda", "opencl", "fake"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ShardedOn, TrainsAsOnTheHost) {
  for (const int ranks : {2, 4}) {
    const Outcome want = train({.ranks = ranks});
    for (const Sharding s : kEach)
      for (const auto& [offload, compiled] : kWays) {
        const How how{.device = GetParam(),
                      .ranks = ranks,
                      .sharding = s,
                      .offload = offload,
                      .compiled = compiled};
        expect_same(train(how), want, 1e-5, named(how));
      }
  }
}

// Where the net is and what is updated where changes nothing but rounding; on the driver whose
// kernels are the host's, nothing.
TEST_P(ShardedOn, OffloadedUpdatesAreTheDevices) {
  for (const int ranks : {1, 2})
    for (const Sharding s : {Sharding::none, Sharding::zero2, Sharding::zero3}) {
      How how{.device = GetParam(), .ranks = ranks};
      const Outcome want = train(how);
      how.sharding = s;
      how.offload = true;
      expect_same(train(how), want, 1e-6, named(how));
      how.recomputes = true;
      expect_same(train(how), want, 1e-6, named(how));
    }
}

TEST_P(ShardedOn, ClippingAndVirtualShards) {
  const Outcome clipped = train({.clip = 0.05}), cut = train({.shards = 4});
  for (const Sharding s : {Sharding::zero2, Sharding::zero3})
    for (const bool offload : {false, true}) {
      How how{.device = GetParam(), .sharding = s, .offload = offload, .clip = 0.05};
      expect_same(train(how), clipped, 1e-5, named(how) + ", clipped");
      how.clip = 0;
      how.shards = 4;
      expect_same(train(how), cut, 1e-5, named(how));
    }
}

// On the host there is nothing to bring there.
TEST(ShardedOffload, ChangesNothingOnTheHost) {
  for (const int ranks : {1, 2}) {
    const Outcome want = train({.ranks = ranks}), got = train({.ranks = ranks, .offload = true});
    EXPECT_EQ(got.losses, want.losses);
    for (const auto& [name, v] : want.state) EXPECT_TRUE(same_bits(got.state.at(name), v)) << name;
  }
}

// Saved by one kind of run, resumed by another.
TEST_P(ShardedOn, StatesResumeAnywhere) {
  const Outcome all = train({});
  const std::vector<double> rest(all.losses.begin() + 3, all.losses.end());
  How first{.device = GetParam(), .sharding = Sharding::zero3, .offload = true, .to = 3};
  const std::vector<How> others{
      {.device = GetParam(), .sharding = Sharding::zero3, .offload = true},
      {.device = GetParam(), .sharding = Sharding::zero1, .offload = false},
      {.device = GetParam(), .ranks = 1, .offload = true},
      {.device = "", .ranks = 4, .sharding = Sharding::zero2},
      {.device = "", .ranks = 1}};
  char name[] = "/tmp/tandem-offload-XXXXXX";
  const std::string folder = mkdtemp(name);
  Outcome saved;
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    Outcome own = train_rank(first, e, {});
    if (e->rank() == 0) saved = std::move(own);
  });
  for (How how : others) {
    how.from = 3;
    const auto load = [&](nn::Module& net, DataParallel& model, optim::Optimizer& opt) {
      net.load_state_dict(saved.state);
      model.load_optim_state_dict(opt, saved.moments);
      model.save_sharded(fmt::format("{}/{}", folder, model.engine().size()), opt);
    };
    Outcome got = train(how, load);
    for (size_t k = 0; k < rest.size(); ++k)
      EXPECT_NEAR(got.losses[k], rest[k], 1e-5) << named(how) << k;
    expect_same({{}, got.state, got.moments}, {{}, all.state, all.moments}, 1e-5, named(how));
    // From files of which each rank has written one.
    const auto read = [&](nn::Module&, DataParallel& model, optim::Optimizer& opt) {
      model.load_sharded(fmt::format("{}/{}", folder, how.ranks), opt);
    };
    expect_same(train(how, read), got, 1e-6, named(how) + ", from files");
  }
  std::filesystem::remove_all(folder);
}

TEST_F(OnMockNccl, ShardedStepsStayOnTheirDevices) {
  for (const int ranks : {2, 4}) {
    const Outcome want = train({.ranks = ranks});
    for (const Sharding s : kEach)
      for (const auto& [offload, compiled] : kWays) {
        new_runs();
        const How how{.device = "fake",
                      .ranks = ranks,
                      .sharding = s,
                      .offload = offload,
                      .compiled = compiled};
        expect_same(train(how), want, 1e-5, named(how));
        // Gathers and sums of six steps, two units and more.
        EXPECT_GE(new_runs(), 6 * 2 * 2) << named(how);
      }
  }
  // Virtual shards need the tree's order, which is the host's; gathers have none.
  new_runs();
  const How cut{.device = "fake", .sharding = Sharding::zero2, .shards = 4};
  expect_same(train(cut), train({.shards = 4}), 1e-5, named(cut));
  EXPECT_GT(new_runs(), 0);
}

// ---- memory of a device

struct DeepNet : nn::Module {
  std::vector<nn::Linear> layers;
  DeepNet() {
    for (int i = 0; i < 6; ++i) layers.emplace_back(128, 128, nn::LinearOptions{.bias = false});
    TD_REGISTER(layers);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = tanh(l(x));
    return x;
  }
};

/// What the allocator says of the ranks' devices, in layers for each rank.
struct DeviceBytes {
  double in_use = 0, peak = 0;
  DeviceBytes(const std::string& kind, int ranks) {
    constexpr double kLayer = 4.0 * 128 * 128;
    std::vector<Device> seen;
    for (int r = 0; r < ranks; ++r) {
      const Device d = *device_for(kind, r);
      if (std::find(seen.begin(), seen.end(), d) != seen.end()) continue;
      seen.push_back(d);
      synchronize(d);
      in_use += static_cast<double>(allocator_stats(d).in_use) / ranks / kLayer;
      peak += static_cast<double>(allocator_stats(d).peak) / ranks / kLayer;
    }
  }
};
/// At points of the second step; the peak is that of both steps, where it is above what there was.
struct Held {
  double built = 0, after_forward = 0, after_backward = 0, after_step = 0, peak = 0;
};
Held held_on_device(const std::string& kind, int ranks, Sharding s, bool offload, bool compiled) {
  const DeviceBytes before(kind, ranks);
  Held held;
  run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
    const auto look = [&](double& at) {
      e->barrier().wait();
      if (e->rank() == 0) at = DeviceBytes(kind, ranks).in_use - before.in_use;
      e->barrier().wait();
    };
    const Device device = *device_for(kind, e->rank());
    DeepNet net = deferred_init([&] {
      DeepNet made;
      made.to(device);
      return made;
    });
    DataParallel model(net, {.bucket_cap_mb = 0.07, .sharding = s, .offload_optimizer = offload},
                       e);
    optim::Adam opt(model.parameters());
    look(held.built);
    const auto whole_step = [&](Tensor x) {
      model(x).sum().backward();
      opt.step();
      opt.zero_grad();
      return zeros({});
    };
    auto program = compile(whole_step);
    for (int step = 0; step < 2; ++step) {
      const Tensor x = ones({2, 128}).to(device);
      if (compiled) {
        program(x);
        look(held.after_step);
        continue;
      }
      Tensor loss = model(x).sum();
      look(held.after_forward);
      loss.backward();
      loss = Tensor();
      look(held.after_backward);
      opt.step();
      opt.zero_grad();
      look(held.after_step);
    }
  });
  const DeviceBytes after(kind, ranks);
  held.peak = after.peak > before.peak ? after.peak - before.in_use : 0;
  return held;
}

// A net of 6 layers with Adam: what a device holds, in layers. Of peaks only the highest so far is
// known, so what holds least comes first.
TEST_P(ShardedOn, DevicesHoldNoMomentsThatAreOffloaded) {
  constexpr double kNet = 6, kSlack = 0.3;  // inputs, activations, blocks that are rounded up
  struct Row {
    int ranks;
    Sharding sharding;
    bool offload;
    Held most;
    bool compiled = false;
  };
  const std::vector<Row> rows{
      // Two units of parameters and two of gradients, of which one has its parts beside it.
      {1, Sharding::zero3, true, {0, 0, 0, 0, kPeakUnits}},
      {2, Sharding::zero3, true, {0, 0, 0, 0, kPeakUnits}},
      // The moments are on the host, and the gradients go there.
      {1, Sharding::none, true, {0, kNet, kNet, kNet, kNet + kPeakGradients}},
      {2, Sharding::zero1, true, {0, kNet, kNet, kNet, kNet + kPeakGradients}},
      {2, Sharding::zero2, true, {0, kNet, kNet, kNet, kNet + kPeakGradients}},
      // Halves of the moments, the parameters and the gradients.
      {2, Sharding::zero3, false, {9, 0, 0, 12 + kPeakUnits, 12 + kPeakUnits}, true},
      {2, Sharding::zero3, false, {9, 9, 12, 9, 12 + kPeakUnits}},
      {2, Sharding::zero2, false, {9, 9 + kNet, 12 + kNet, 9 + kNet, 12 + kNet + kPeakGradients}},
      // Parameters, gradients, moments.
      {1, Sharding::none, false, {3 * kNet, 3 * kNet, 4 * kNet, 3 * kNet, 4 * kNet + 2}},
  };
  for (const Row& row : rows) {
    const Held held =
        held_on_device(GetParam(), row.ranks, row.sharding, row.offload, row.compiled);
    const std::string what = fmt::format(
        "{} ranks, zero{}{}{}: {:.2f} layers when built, {:.2f} after the forward pass, {:.2f} "
        "after "
        "the backward pass, {:.2f} after the step, {:.2f} at most",
        row.ranks, static_cast<int>(row.sharding), row.offload ? ", offload" : "",
        row.compiled ? ", compiled" : "", held.built, held.after_forward, held.after_backward,
        held.after_step, held.peak);
    RecordProperty(fmt::format("ranks {} zero{} offload {} compiled {}", row.ranks,
                               static_cast<int>(row.sharding), row.offload, row.compiled),
                   what);
    EXPECT_LE(held.built, row.most.built + kSlack) << what;
    EXPECT_LE(held.after_forward, row.most.after_forward + kSlack) << what;
    EXPECT_LE(held.after_backward, row.most.after_backward + kSlack) << what;
    EXPECT_LE(held.after_step, row.most.after_step + kSlack) << what;
    EXPECT_LE(held.peak, row.most.peak + kSlack) << what;
  }
}

// A net that is built in parts goes to its device when it is made, as do moments of an optimizer.
TEST_P(ShardedOn, RecipesOfValuesGoToDevices) {
  const Device device = *device_for(GetParam(), 0);
  manual_seed(3);
  const DeepNet want;
  manual_seed(3);
  const int64_t before = allocator_stats(device).in_use;
  const DeepNet net = deferred_init([&] {
    DeepNet made;
    made.to(device);
    return made;
  });
  const DeferredInitGuard later;
  const optim::Adam opt(net.parameters());
  EXPECT_EQ(allocator_stats(device).in_use, before);
  const Tensor weight = net.layers[0].weight.value();
  EXPECT_EQ(weight.device(), device);
  EXPECT_TRUE(tandem::detail::is_deferred(weight));
  const DeferredInitGuard now(false);
  EXPECT_TRUE(same_bits(weight.cpu(), want.layers[0].weight.value()));
  EXPECT_EQ(net.layers[1].weight.value().to_vector<float>(),
            want.layers[1].weight.value().to_vector<float>());
}

// ---- what else offloading changes

// One rank updates whole parameters, so any optimizer will do.
TEST_P(ShardedOn, OneRankOffloadsAnyOptimizer) {
  const auto run = [&](bool offload) {
    const Device device = *device_for(GetParam(), 0);
    manual_seed(5);
    ShardedNet net;
    net.to(device);
    DataParallel model(net, {.offload_optimizer = offload}, single_engine());
    optim::LAMB opt(model.parameters(), {.lr = 1e-2});
    for (int k = 0; k < 3; ++k) {
      opt.zero_grad();
      const Tensor x = (ones({4, 12}) * (k + 1)).to(device);
      model(x).square().mean().backward();
      opt.step();
    }
    return on_host(model.state_dict());
  };
  const StateDict want = run(false), got = run(true);
  for (const auto& [name, v] : want) EXPECT_TRUE(allclose(got.at(name), v, 0, 1e-5)) << name;
}

// Gradients that overflow, and those of several passes.
TEST_P(ShardedOn, ScaledAndAccumulatedGradients) {
  for (const bool offload : {false, true})
    for (const int ranks : {1, 2})
      run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
        const Device device = *device_for(GetParam(), e->rank());
        const DeviceGuard there(device);
        manual_seed(5);
        ShardedNet net;
        net.to(device);
        const Sharding s = ranks == 1 ? Sharding::none : Sharding::zero2;
        DataParallel model(net, {.sharding = s, .offload_optimizer = offload}, e);
        optim::SGD opt(model.parameters(), {.lr = 0.1});
        optim::GradScaler scaler({.init_scale = 8});
        scaler.set_max_over_ranks(model.max_over_ranks());
        const Tensor x = randn({8, 12});
        const auto values = [&] {
          std::vector<Tensor> all;
          for (const Param& p : model.parameters()) all.push_back(p.value().cpu().clone());
          return all;
        };
        const auto pass = [&](const Tensor& in, double factor) {
          scaler.scale(model(in).square().mean() * factor).backward();
        };
        const std::vector<Tensor> before = values();
        pass(x, e->rank() == 0 ? std::numeric_limits<double>::infinity() : 1.0);
        scaler.step(opt);
        scaler.update();
        EXPECT_EQ(scaler.get_scale(), 4);
        std::vector<Tensor> now = values();
        for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(same_bits(now[i], before[i])) << i;
        opt.zero_grad();
        net.eval();  // batch norms would see halves of a batch
        pass(x, 1);
        std::vector<Tensor> whole;
        for (const Param& p : model.parameters())
          whole.push_back(p.grad().defined() ? p.grad().cpu().clone() : Tensor());
        opt.zero_grad();
        {
          const auto hold = model.no_sync();
          pass(narrow(x, 0, 0, 4), 0.5);
        }
        pass(narrow(x, 0, 4, 4), 0.5);
        for (size_t i = 0; i < whole.size(); ++i)
          if (const Tensor g = model.parameters()[i].grad(); whole[i].defined())
            EXPECT_TRUE(allclose(g.cpu(), whole[i], 1e-5, 1e-5)) << i << offload << ranks;
        scaler.step(opt);
        scaler.update();
        now = values();
        int64_t changed = 0;
        for (size_t i = 0; i < now.size(); ++i) changed += same_bits(now[i], before[i]) ? 0 : 1;
        EXPECT_GT(changed, 0);
      });
}

// The optimizer of a net goes to the host with the state that it has, and comes back.
TEST_P(ShardedOn, OptimizersGoToTheHostAndComeBack) {
  const Device device = *device_for(GetParam(), 0);
  ShardedNet net;
  net.to(device);
  optim::AdamW opt(net.parameters());
  net(ones({2, 12}).to(device)).sum().backward();
  opt.step();
  opt.zero_grad();
  const StateDict before = opt.state_dict();
  {
    DataParallel model(net, {.sharding = Sharding::zero3, .offload_optimizer = true},
                       single_engine());
    model.shard_optimizer(opt);
    for (const auto& [name, v] : opt.state_dict())
      if (v.dim() > 0 && !has(name, "param_groups")) EXPECT_EQ(v.device(), cpu) << name;
    model.unshard_optimizer(opt);
    model.restore();
  }
  for (const auto& [name, v] : opt.state_dict()) {
    EXPECT_EQ(v.device(), before.at(name).device()) << name;
    EXPECT_TRUE(same_bits(v.cpu(), before.at(name).cpu())) << name;
  }
}

TEST_P(ShardedOn, OffloadedStepsAreNotOneProgram) {
  const Device device = *device_for(GetParam(), 0);
  ShardedNet net;
  net.to(device);
  DataParallel model(net, {.offload_optimizer = true}, single_engine());
  optim::AdamW opt(model.parameters());
  const Tensor x = ones({2, 12}).to(device);
  auto whole = compile([&](Tensor in) {
    const Tensor l = model(in).sum();
    l.backward();
    return l;
  });
  EXPECT_TRUE(has(thrown([&] { whole(x); }, ErrorKind::Unsupported),
                  "call reduce_gradients() and the optimizer's step() outside"));
  // The way that the text names.
  auto passes = compile([&](Tensor in) {
    const auto hold = model.no_sync();
    const Tensor l = model(in).square().mean();
    l.backward();
    return l;
  });
  std::vector<double> losses;
  for (int k = 0; k < 3; ++k) {
    opt.zero_grad();
    model.sync_buffers();
    losses.push_back(passes(x).cpu().item<float>());
    model.reduce_gradients();
    opt.step();
  }
  EXPECT_LT(losses[2], losses[0]);
}

}  // namespace
}  // namespace tandem::distributed
