// SPDX-License-Identifier: Apache-2.0
// What ranks hold at most where optimizer state, gradients and parameters are sharded: in a step,
// and while a net is made that no rank ever has as a whole.
#include <gtest/gtest.h>

#include <map>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/tensor/allocator.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

std::string kind(Sharding s) { return fmt::format("sharding {}", static_cast<int>(s)); }

struct ManyLayers : nn::Module {
  std::vector<nn::Linear> layers;
  ManyLayers(int64_t depth, int64_t width, bool bias) {
    for (int64_t i = 0; i < depth; ++i)
      layers.emplace_back(width, width, nn::LinearOptions{.bias = bias});
    TD_REGISTER(layers);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = tanh(l(x));
    return x;
  }
};
// The formulas of docs/distributed.md, from the bytes that the allocator and regions held at most
// in a step; ranks share this process.
void check_formulas(bool compiled) {
  constexpr double kLayer = 4.0 * 1024 * 1024, kNet = 6 * kLayer;
  constexpr int kRanks = 2;
  const double before = static_cast<double>(allocator_stats().in_use);
  for (const Sharding s : {Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::zero3}) {
    double peak = 0;
    run_ranks(kRanks, [&](const std::shared_ptr<Engine>& e) {
      ManyLayers net(6, 1024,
                     false);  // layers of 4 MB: what the allocator's blocks are multiples of
      DataParallel model(net, {.bucket_cap_mb = 4.2, .first_bucket_mb = 4.2, .sharding = s}, e);
      optim::Adam opt(model.parameters());
      const Tensor x = ones({2, 1024});
      const auto whole_step = [&](Tensor input) {
        const Tensor loss = model(input).sum();
        loss.backward();
        opt.step();
        opt.zero_grad();
        return loss;
      };
      auto program = compile(whole_step);
      for (int step = 0; step < 2; ++step) {
        if (step == 1) {
          e->barrier().wait();
          if (e->rank() == 0) {
            reset_allocator_peak();
            tandem::detail::reset_region_peak();
          }
          e->barrier().wait();
        }
        compiled ? program(x) : whole_step(x);
      }
      e->barrier().wait();
      if (e->rank() == 0)
        peak = static_cast<double>(allocator_stats().peak + tandem::detail::region_bytes().peak);
      e->barrier().wait();
    });
    const double rank = (peak - before) / kRanks;
    const double want = s == Sharding::none    ? 5 * kNet
                        : s == Sharding::zero1 ? kNet * 2 + 4 * kNet / kRanks
                        : s == Sharding::zero2 ? kNet + 4 * kNet / kRanks + 2 * kLayer
                                               : 4 * kNet / kRanks + 4 * kLayer;
    testing::Test::RecordProperty(kind(s),
                                  fmt::format("{:.1f} MB, formula {:.1f}", rank / 1e6, want / 1e6));
    // Gradients of a program are made where they are sent from, so those of whole parameters are
    // there once.
    if (compiled && s != Sharding::zero3)
      EXPECT_LT(rank / want, 0.9) << kind(s) << " " << rank / 1e6 << " MB";
    else
      EXPECT_NEAR(rank / want, 1, 0.1) << kind(s) << " " << rank / 1e6 << " MB";
  }
}
TEST(ShardedMemory, IsThatOfTheFormulas) { check_formulas(false); }
TEST(ShardedMemory, OfCompiledStepsIsNoMore) { check_formulas(true); }

// A net that is built as shapes and recipes: a rank makes what it keeps, and one parameter at a
// time beside it. The values are rank 0's, whose seed counts.
TEST(ShardedMemory, RanksMakeOnlyWhatTheyHold) {
  constexpr int kRanks = 4;
  manual_seed(9);
  const auto make = [] { return ManyLayers(16, 256, true); };
  const StateDict want = make().state_dict();
  double net_bytes = 0;
  for (const auto& [name, v] : want) net_bytes += 4.0 * static_cast<double>(v.numel());
  for (const Sharding s : {Sharding::zero1, Sharding::zero3}) {
    const double before = static_cast<double>(allocator_stats().in_use);
    reset_allocator_peak();
    double peak = 0;
    run_ranks(kRanks, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(static_cast<uint64_t>(9 + e->rank()));
      ManyLayers net = deferred_init(make);
      DataParallel model(net, {.bucket_cap_mb = 0.3, .sharding = s}, e);
      optim::Adam opt(model.parameters());
      e->barrier().wait();
      if (e->rank() == 0) peak = static_cast<double>(allocator_stats().peak);
      e->barrier().wait();
      const StateDict state = model.state_dict();
      for (const auto& [name, v] : want) EXPECT_TRUE(same_bits(*state.find(name), v)) << name;
      model(ones({1, 256})).mean().backward();
      opt.step();
      ManyLayers eager = make();
      eager.load_state_dict(want);
      DataParallel same(eager, {.bucket_cap_mb = 0.3, .sharding = s}, e);
      optim::Adam opt_of_same(same.parameters());
      same(ones({1, 256})).mean().backward();
      opt_of_same.step();
      const StateDict stepped = model.state_dict();
      for (const auto& [name, v] : same.state_dict())
        EXPECT_TRUE(same_bits(*stepped.find(name), v)) << name;
    });
    // A quarter each for the parameters and Adam's moments, and a layer of sixteen that passes by
    // (rank 0 makes it, others receive it).
    const double share = (peak - before) / kRanks / net_bytes;
    RecordProperty(kind(s), fmt::format("{:.2f} of the net", share));
    EXPECT_LT(share, 3.0 / kRanks + 2.0 / 16) << kind(s);
  }
}

// Whole values pass one after the other: what a rank holds beside its parts is a layer, its sum
// over the ranks and a moment that is put together, however deep the net is.
TEST(ShardedMemory, WholeStatesPassByOneAfterTheOther) {
  constexpr int kRanks = 2, kDepth = 24;
  constexpr double kLayer = 4.0 * 256 * 256;
  for (const Sharding s : {Sharding::none, Sharding::zero1, Sharding::zero3}) {
    double most = 0;
    run_ranks(kRanks, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(3);
      ManyLayers net(kDepth, 256, false);
      DataParallel model(net, {.bucket_cap_mb = 0.3, .sharding = s}, e);
      optim::Adam opt(model.parameters());
      model(ones({2, 256})).mean().backward();
      opt.step();
      opt.zero_grad();
      model.sync_buffers();
      e->barrier().wait();
      double before = 0;
      if (e->rank() == 0) {
        before = static_cast<double>(allocator_stats().in_use);
        reset_allocator_peak();
      }
      e->barrier().wait();
      double sum = 0;  // so that the values are read
      std::map<std::string, int> seen;
      const auto see = [&](const std::string& name, const Tensor& whole) {
        ++seen[name];
        if (whole.dim() == 2) sum += whole.abs().mean().item<double>();
      };
      model.each_state(see);
      model.each_optim_state(opt, see);
      e->barrier().wait();
      if (e->rank() == 0)
        most = (static_cast<double>(allocator_stats().peak) - before) / kRanks / kLayer;
      e->barrier().wait();
      const StateDict state = model.state_dict(), moments = model.optim_state_dict(opt);
      EXPECT_EQ(seen.size(), state.size() + moments.size());
      double want = 0;
      for (const StateDict& all : {state, moments})
        for (const auto& [name, whole] : all) {
          EXPECT_EQ(seen[name], 1) << name;
          if (whole.dim() == 2) want += whole.abs().mean().item<double>();
        }
      EXPECT_NEAR(sum, want, 1e-6 * want);
    });
    RecordProperty(kind(s), fmt::format("{:.2f} layers", most));
    EXPECT_LT(most, 3) << kind(s);
  }
}

// What is written into parameters that are elsewhere goes to the shards, and is not kept beside
// them.
TEST(ShardedMemory, LoadedValuesGoToTheShards) {
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(3);
    ManyLayers net(2, 64, false);
    manual_seed(4);
    const ManyLayers other(2, 64, false);
    const Tensor x = ones({2, 64});
    const DataParallelOptions options{.sharding = Sharding::zero3};
    DataParallel model(net, options, e);
    net.load_state_dict(other.state_dict());
    const NoGradGuard no_grad;
    const Tensor y = model(x);
    ManyLayers alone(2, 64, false);
    alone.load_state_dict(other.state_dict());
    EXPECT_TRUE(same_bits(y, alone(x)));
    for (const Param& p : model.parameters()) p.assign_(zeros(p.shape()));
    EXPECT_TRUE(same_bits(model(x), zeros({2, 64})));
  });
}

// Tied parameters are seen by both of their names, with the values of state_dict().
TEST(ShardedMemory, WholeStatesHaveEveryName) {
  struct Tied : nn::Module {
    nn::Embedding in{32, 16};
    nn::Linear out{16, 32, {.bias = false}};
    nn::BatchNorm1d norm{16};
    Tied() {
      out.weight = in.weight;
      TD_REGISTER(in, out, norm);
    }
    Tensor forward(Tensor x) { return out(norm(in(x))); }
  };
  for (const Sharding s : {Sharding::none, Sharding::zero2, Sharding::zero3})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(5);
      Tied net;
      const StateDict want = net.state_dict();
      const DataParallelOptions options{.sharding = s};
      DataParallel model(net, options, e);
      StateDict got;
      model.each_state([&](const std::string& name, const Tensor& v) { got[name] = v.clone(); });
      EXPECT_EQ(got.size(), want.size());
      for (const auto& [name, v] : want)
        EXPECT_TRUE(got.contains(name) && same_bits(got.at(name), v)) << name;
    });
}

}  // namespace
}  // namespace tandem::distributed
