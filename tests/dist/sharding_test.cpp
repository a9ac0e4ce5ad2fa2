// SPDX-License-Identifier: Apache-2.0
// Sharded optimizer state, gradients and parameters against one rank that holds all of them, and
// against data parallel training without; whole states, memory, and what is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>

#include "tandem/compile/compile.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/graph/rng.h"
#include "tandem/models/text/gpt.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

constexpr int64_t kRows = 8;

/// Data, a net and its loss.
struct ShardedMlp {
  struct Net : nn::Module {
    nn::Linear first{12, 21}, second{21, 7}, out{7, 5};
    Net() { TD_REGISTER(first, second, out); }
    Tensor forward(Tensor x) { return out(tanh(second(relu(first(x))))); }
  };
  static std::pair<Tensor, Tensor> batch() { return {randn({kRows, 12}), randint(0, 5, {kRows})}; }
  static Tensor loss(const Tensor& out, const Tensor& y) { return cross_entropy(out, y); }
};
struct ShardedConv {
  struct Net : nn::Module {
    nn::Conv2d conv{1, 4, {3, 3}};
    nn::BatchNorm2d norm{4};
    nn::Linear out{16, 5};
    Net() { TD_REGISTER(conv, norm, out); }
    Tensor forward(Tensor x) { return out(max_pool2d(relu(norm(conv(x))), {2, 2}).flatten(1)); }
  };
  static std::pair<Tensor, Tensor> batch() {
    return {randn({kRows, 1, 6, 6}), randint(0, 5, {kRows})};
  }
  static Tensor loss(const Tensor& out, const Tensor& y) { return cross_entropy(out, y); }
};
/// The embedding is tied to the output: its unit is read by two modules.
struct ShardedGpt {
  struct Net : models::GPT {
    Net()
        : GPT({.vocabulary = 31,
               .context = 6,
               .layers = 2,
               .heads = 2,
               .width = 12,
               .dropout = 0}) {}
  };
  static std::pair<Tensor, Tensor> batch() {
    return {randint(0, 31, {kRows, 6}), randint(0, 31, {kRows, 6})};
  }
  static Tensor loss(const Tensor& out, const Tensor& y) {
    return cross_entropy(out.flatten(0, 1), y.flatten());
  }
};

Tensor own_rows(const Tensor& x, const Engine& e) {
  const int64_t rows = x.size(0) / e.size();
  return narrow(x, 0, e.rank() * rows, rows);
}

struct ShardedRun {
  StateDict state, moments;
  std::vector<double> losses;
};
struct HowSharded {
  Sharding sharding = Sharding::none;
  int64_t shards = 0;
  int steps = 20;
  double clip = 0;
  bool compiled = false;
};

template <class Case>
ShardedRun train_sharded(int ranks, HowSharded how) {
  ShardedRun result;
  std::mutex lock;
  run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    typename Case::Net net;
    DataParallel model(net,
                       {.bucket_cap_mb = 0.0012,
                        .first_bucket_mb = 0.0002,
                        .shards = how.shards,
                        .sync_batchnorm = how.shards == 0,
                        .sharding = how.sharding},
                       e);
    optim::AdamW opt(model.parameters(), {.lr = 3e-3, .eps = 1e-4});
    const auto whole_step = [&](Tensor x, Tensor y) {
      opt.zero_grad();
      const Tensor l = Case::loss(model(x), y);
      l.backward();
      if (how.clip > 0) model.clip_grad_norm_(how.clip);
      opt.step();
      return l;
    };
    auto program = compile(whole_step);
    for (int step = 0; step < how.steps; ++step) {
      std::pair<Tensor, Tensor> batch;
      {
        const GeneratorGuard random({77, static_cast<uint64_t>(step) * 8});
        batch = Case::batch();
      }
      const Tensor x = own_rows(batch.first, *e), y = own_rows(batch.second, *e);
      double loss = 0;
      if (how.shards > 0) {
        opt.zero_grad();
        loss = model
                   .sharded_backward(x.size(0),
                                     [&](int64_t b, int64_t end) {
                                       return Case::loss(model(narrow(x, 0, b, end - b)),
                                                         narrow(y, 0, b, end - b));
                                     })
                   .template item<double>();
        if (how.clip > 0) model.clip_grad_norm_(how.clip);
        opt.step();
      } else {
        const Tensor l = how.compiled ? program(x, y) : whole_step(x, y);
        double sum = l.item<float>();
        e->all_reduce({&sum, 1, DType::f64}).wait();
        loss = sum / e->size();
      }
      if (e->rank() == 0) result.losses.push_back(loss);
    }
    const StateDict state = model.state_dict(), moments = model.optim_state_dict(opt);
    if (e->rank() > 0) return;
    const std::lock_guard hold(lock);
    result.state = state;
    result.moments = moments;
  });
  return result;
}

void expect_near(const ShardedRun& a, const ShardedRun& b, double by, const std::string& what) {
  for (size_t i = 0; i < b.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], by) << what << ", step " << i;
  }
  for (const auto& [name, value] : b.state)
    EXPECT_TRUE(allclose(a.state.at(name), value, 0, by)) << name << ", " << what;
}
void expect_bits(const ShardedRun& a, const ShardedRun& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  for (const auto& [name, value] : b.state)
    EXPECT_TRUE(same_bits(a.state.at(name), value)) << name << ", " << what;
  for (const auto& [name, value] : b.moments)
    EXPECT_TRUE(same_bits(a.moments.at(name), value)) << name << ", " << what;
}

constexpr Sharding kAll[] = {Sharding::zero1, Sharding::zero2, Sharding::zero3};
std::string named(Sharding s, int ranks) {
  return fmt::format("zero{} on {} ranks", static_cast<int>(s), ranks);
}

// 20 steps: those of one rank to 1e-5, those of DataParallel without sharding to the bit, as one
// program each too.
template <class Case>
void check_sharded() {
  const ShardedRun one = train_sharded<Case>(1, {});
  ASSERT_EQ(one.losses.size(), 20u);
  for (const int ranks : {2, 4}) {
    const ShardedRun whole = train_sharded<Case>(ranks, {});
    expect_near(whole, one, 1e-5, "not sharded");
    for (const Sharding s : kAll) {
      const ShardedRun parts = train_sharded<Case>(ranks, {.sharding = s});
      expect_bits(parts, whole, named(s, ranks));
      expect_near(parts, one, 1e-5, named(s, ranks));
      expect_bits(train_sharded<Case>(ranks, {.sharding = s, .compiled = true}), parts,
                  "compiled, " + named(s, ranks));
    }
  }
}
TEST(Sharding, MlpIsThatOfOneRank) { check_sharded<ShardedMlp>(); }
TEST(Sharding, ConvNetWithSyncBatchNormIsThatOfOneRank) { check_sharded<ShardedConv>(); }
TEST(Sharding, GptIsThatOfOneRank) { check_sharded<ShardedGpt>(); }

// Two updates in one program: the second reads what the first has written.
TEST(Sharding, AProgramOfTwoStepsGathersAgain) {
  for (const Sharding s : kAll) {
    StateDict states[2];
    for (const bool compiled : {false, true})
      run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
        manual_seed(5);
        ShardedMlp::Net net;
        DataParallel model(net, {.bucket_cap_mb = 0.0012, .sharding = s}, e);
        optim::AdamW opt(model.parameters(), {.lr = 0.1});
        const auto twice = [&](Tensor x) {
          Tensor loss;
          for (int k = 0; k < 2; ++k) {
            opt.zero_grad();
            loss = model(x).square().mean();
            loss.backward();
            opt.step();
          }
          return loss;
        };
        auto program = compile(twice);
        for (int k = 0; k < 2; ++k) {
          const Tensor x = ones({2, 12}) * (k + e->rank() + 1);
          const int64_t calls = e->calls();
          compiled ? program(x) : twice(x);
          // For each update three units, three sums, and with zero3 the second unit again: the
          // first is not needed for gradients, the last is still here.
          const bool frees = s == Sharding::zero3;
          if (compiled) EXPECT_EQ(e->calls() - calls, 2 * (3 + 3 + (frees ? 1 : 0))) << named(s, 2);
        }
        const StateDict state = model.state_dict();
        if (e->rank() == 0) states[compiled] = state;
      });
    for (const auto& [name, value] : states[0])
      EXPECT_TRUE(same_bits(states[1].at(name), value)) << name << ", " << named(s, 2);
  }
}

TEST(Sharding, VirtualShardsGiveTheSameBits) {
  const HowSharded how{.shards = 4, .steps = 4};
  const ShardedRun one = train_sharded<ShardedConv>(1, how);
  for (const int ranks : {2, 4})
    for (const Sharding s : kAll) {
      HowSharded parts = how;
      parts.sharding = s;
      expect_bits(train_sharded<ShardedConv>(ranks, parts), one, named(s, ranks));
    }
}

TEST(Sharding, ClippingIsByTheNormOverAllRanks) {
  const ShardedRun one = train_sharded<ShardedMlp>(1, {.clip = 0.05});
  const ShardedRun free = train_sharded<ShardedMlp>(1, {});
  EXPECT_FALSE(allclose(one.state.at("first.weight"), free.state.at("first.weight"), 0, 1e-4));
  for (const Sharding s : {Sharding::zero2, Sharding::zero3})
    for (const bool compiled : {false, true})
      expect_near(train_sharded<ShardedMlp>(2, {.sharding = s, .clip = 0.05, .compiled = compiled}),
                  one, 1e-5, named(s, 2));
}

// Parameters are here while a module runs, and not afterwards; gradients only as parts.
TEST(Sharding, ParametersAreDroppedAfterUse) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    ShardedMlp::Net net;
    DataParallel model(net, {.bucket_cap_mb = 0.0012, .sharding = Sharding::zero3}, e);
    const Tensor before = net.second.weight.value().clone();
    EXPECT_FALSE(before.isnan().any().item<bool>());
    model.reshard();
    int64_t held = 0;
    for (const Param& p : model.parameters()) held += p.numel();
    constexpr int64_t kElements = 12 * 21 + 21 + 21 * 7 + 7 + 7 * 5 + 5;
    EXPECT_LE(held, kElements / 2 + 6 * 16);
    EXPECT_GE(held, kElements / 2 - 6 * 16);
    for (int step = 0; step < 2; ++step) {
      const int64_t calls = e->calls();
      Tensor loss = model(ones({2, 12})).sum();
      loss.backward();
      // Of three units the values, those that the tape needs again, the gradients; and who gave
      // one.
      EXPECT_EQ(e->calls(), calls + 3 + 3 + 3 + 1);
      for (const Param& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
      for (const Param& p : model.parameters()) {
        EXPECT_TRUE(p.grad().defined());
        p.zero_grad();
      }
    }
    EXPECT_TRUE(same_bits(net.second.weight.value(), before));
    // A second walk over what is gone says so.
    Tensor loss = model(ones({2, 12})).sum();
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(has(thrown(
                        [&] {
                          const auto hold = model.no_sync();
                          loss.backward();
                        },
                        ErrorKind::Value),
                    "parameters of a step that is over"));
  });
}

// Accumulation, and values that a program writes into the net.
TEST(Sharding, NoSyncAndWrittenValues) {
  for (const Sharding s : kAll)
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(5);
      ShardedMlp::Net net;
      const ShardedMlp::Net same = clone(net);
      DataParallel model(net, {.bucket_cap_mb = 0.0012, .sharding = s}, e);
      const Tensor x = own_rows(randn({kRows, 12}), *e);
      model(x).square().mean().backward();
      std::vector<Tensor> whole;
      for (const Param& p : model.parameters()) {
        whole.push_back(p.grad().clone());
        p.zero_grad();
      }
      const Tensor half = narrow(x, 0, 0, 2), rest = narrow(x, 0, 2, 2);
      {
        const auto hold = model.no_sync();
        (model(half).square().mean() / 2).backward();
      }
      (model(rest).square().mean() / 2).backward();
      size_t i = 0;
      for (const Param& p : model.parameters())
        EXPECT_TRUE(allclose(p.grad(), whole[i++], 0, 1e-6)) << p.name();
      StateDict twice;
      for (const auto& [name, v] : same.state_dict()) twice[name] = v * 2;
      net.load_state_dict(twice);
      model(x);
      for (const auto& [name, v] : model.state_dict())
        EXPECT_TRUE(same_bits(v, twice.at(name))) << name;
    });
}

// Steps [from, to) of a run with virtual shards; gives the losses. `begin` and `end` see the model.
using SeeRun = std::function<void(nn::Module&, DataParallel&, optim::Optimizer&)>;
std::vector<double> part_of_run(int ranks, Sharding s, int from, int to, const SeeRun& begin,
                                const SeeRun& end) {
  std::vector<double> losses;
  run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(static_cast<uint64_t>(5 + from));
    ShardedConv::Net net;
    DataParallel model(net, {.bucket_cap_mb = 0.0005, .shards = 4, .sharding = s}, e);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    model.shard_optimizer(opt);
    begin(net, model, opt);
    for (int step = from; step < to; ++step) {
      std::pair<Tensor, Tensor> batch;
      {
        const GeneratorGuard random({77, static_cast<uint64_t>(step) * 8});
        batch = ShardedConv::batch();
      }
      const Tensor x = own_rows(batch.first, *e), y = own_rows(batch.second, *e);
      opt.zero_grad();
      const Tensor l = model.sharded_backward(x.size(0), [&](int64_t b, int64_t to_row) {
        return cross_entropy(model(narrow(x, 0, b, to_row - b)), narrow(y, 0, b, to_row - b));
      });
      opt.step();
      if (e->rank() == 0) losses.push_back(l.item<double>());
    }
    end(net, model, opt);
  });
  return losses;
}

// States are whole: saved on 4 ranks, loaded on 1, 2 and 4, the run is the same.
TEST(Sharding, StatesLoadOnOtherNumbersOfRanks) {
  StateDict net_state, moments;
  const SeeRun nothing = [](nn::Module&, DataParallel&, optim::Optimizer&) {};
  const SeeRun keep = [&](nn::Module&, DataParallel& model, optim::Optimizer& opt) {
    const StateDict a = model.state_dict(), b = model.optim_state_dict(opt);
    if (model.engine().rank() > 0) return;
    net_state = a;
    moments = b;
  };
  const SeeRun give = [&](nn::Module& net, DataParallel& model, optim::Optimizer& opt) {
    net.load_state_dict(net_state);
    model.load_optim_state_dict(opt, moments);
  };
  // The optimizer is the net's again, with the same state.
  const SeeRun back = [](nn::Module&, DataParallel& model, optim::Optimizer& opt) {
    const StateDict parts = model.optim_state_dict(opt);
    model.unshard_optimizer(opt);
    for (const auto& [name, v] : opt.state_dict())
      EXPECT_TRUE(same_bits(v, parts.at(name))) << name;
  };
  const std::vector<double> all = part_of_run(4, Sharding::zero3, 0, 6, nothing, back);
  part_of_run(4, Sharding::zero3, 0, 3, nothing, keep);
  for (const int ranks : {1, 2, 4})
    for (const Sharding s : {Sharding::none, Sharding::zero1, Sharding::zero3})
      EXPECT_EQ(part_of_run(ranks, s, 3, 6, give, back),
                std::vector<double>(all.begin() + 3, all.end()))
          << named(s, ranks);
}

// The same from files of which each rank has written one.
TEST(Sharding, FilesLoadOnOtherNumbersOfRanks) {
  char name[] = "/tmp/tandem-sharded-XXXXXX";
  const std::string folder = mkdtemp(name);
  const SeeRun nothing = [](nn::Module&, DataParallel&, optim::Optimizer&) {};
  const SeeRun keep = [&](nn::Module&, DataParallel& model, optim::Optimizer& opt) {
    model.save_sharded(folder + "/at", opt);
  };
  const SeeRun give = [&](nn::Module&, DataParallel& model, optim::Optimizer& opt) {
    model.load_sharded(folder + "/at", opt);
  };
  const std::vector<double> all = part_of_run(4, Sharding::zero3, 0, 6, nothing, nothing);
  for (const auto& [from, s] : {std::pair(4, Sharding::zero3), std::pair(2, Sharding::zero2),
                                std::pair(1, Sharding::none)}) {
    part_of_run(from, s, 0, 3, nothing, keep);
    for (const int ranks : {1, 2, 4})
      EXPECT_EQ(part_of_run(ranks, Sharding::zero3, 3, 6, give, nothing),
                std::vector<double>(all.begin() + 3, all.end()))
          << from << " ranks, then " << ranks;
  }
  // One file is missing, or the net is another.
  std::filesystem::remove(folder + "/at/rank-00001-of-00001.safetensors");
  ShardedConv::Net net;
  DataParallel model(net, {}, single_engine());
  optim::AdamW opt(net.parameters());
  EXPECT_FALSE(thrown([&] { model.load_sharded(folder + "/at", opt); }, ErrorKind::Io).empty());
  part_of_run(1, Sharding::none, 0, 1, nothing, keep);
  ShardedMlp::Net mlp;
  DataParallel other(mlp, {}, single_engine());
  optim::AdamW of_other(mlp.parameters());
  EXPECT_TRUE(has(thrown([&] { other.load_sharded(folder + "/at", of_other); }, ErrorKind::Value),
                  "holds no"));
  std::filesystem::remove_all(folder);
}

// Marks of gradients that overflow are those of all ranks: one of them has the infinite element.
TEST(Sharding, ScalersSkipTheSameSteps) {
  for (const bool compiled : {false, true})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(5);
      ShardedMlp::Net net;
      DataParallel model(net, {.sharding = Sharding::zero2}, e);
      optim::AdamW opt(model.parameters());
      optim::GradScaler scaler({.init_scale = 8});
      scaler.set_max_over_ranks(model.max_over_ranks());
      std::vector<Tensor> before;
      for (const Param& p : model.parameters()) {
        before.push_back(p.value().clone());
        const double g = e->rank() == 0 ? std::numeric_limits<double>::infinity() : 1.0;
        p.set_grad(full(p.shape(), g));
      }
      std::function<Tensor(Tensor)> update = [&](Tensor x) {
        scaler.step(opt);
        scaler.update();
        return x;
      };
      if (compiled) update = compile(update, {.name = "update"});
      update(ones({}));
      EXPECT_EQ(scaler.get_scale(), 4) << e->rank() << compiled;
      size_t i = 0;
      for (const Param& p : model.parameters()) EXPECT_TRUE(same_bits(p.value(), before[i++]));
    });
}

/// A parameter without dimensions, a buffer and a frozen parameter.
struct ShardedScalar : nn::Module {
  Param weight, gain, fixed;
  Buffer seen;
  explicit ShardedScalar(int64_t n, int64_t others = 3)
      : weight(ones({n})),
        gain(full({}, 2.0)),
        fixed(ones({others}), false),
        seen(zeros({others})) {
    TD_REGISTER(weight, gain, fixed, seen);
  }
  Tensor forward(Tensor x) { return (x * weight).sum() * gain; }
};

TEST(Sharding, FilesOfOtherShapesChangeNothing) {
  char name[] = "/tmp/tandem-sharded-XXXXXX";
  const std::string folder = mkdtemp(name), at = folder + "/at";
  const auto saved = [&](int64_t n, int64_t others) {
    ShardedScalar net(n, others);
    DataParallel model(net, {}, single_engine());
    optim::AdamW opt(model.parameters());
    model(ones({n})).backward();
    opt.step();
    model.save_sharded(at, opt);
    return opt.state_dict();
  };
  const auto refused = [&](ShardedScalar& net) {
    const StateDict before = clone(net).state_dict();
    DataParallel model(net, {}, single_engine());
    optim::AdamW opt(net.parameters());
    const std::string text = thrown([&] { model.load_sharded(at, opt); }, ErrorKind::Value);
    for (const auto& [key, v] : net.state_dict()) EXPECT_TRUE(same_bits(v, before.at(key))) << key;
    return text;
  };
  saved(20, 3);
  ShardedScalar half(10);
  EXPECT_TRUE(has(refused(half), "'weight' is [20] in"));
  ShardedScalar wide(20, 4);
  EXPECT_TRUE(has(refused(wide), "is float32 [3] in"));
  // Moments of a parameter without dimensions, from one rank to two.
  const StateDict moments = saved(20, 3);
  EXPECT_EQ(moments.at("gain.exp_avg").dim(), 0);
  run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
    ShardedScalar net(20);
    DataParallel model(net, {.sharding = Sharding::zero3}, e);
    optim::AdamW opt(net.parameters());
    model.shard_optimizer(opt);
    model.load_sharded(at, opt);
    const StateDict here = model.optim_state_dict(opt);
    for (const char* key : {"gain.exp_avg", "weight.exp_avg", "gain.step"})
      EXPECT_TRUE(same_bits(here.at(key), moments.at(key))) << key;
  });
  std::filesystem::remove_all(folder);
}

// What unshard() has promised stays until reshard().
TEST(Sharding, UnshardHoldsWhileStatesAreTaken) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    ShardedMlp::Net net;
    DataParallel model(net, {.sharding = Sharding::zero3}, e);
    model.unshard();
    model.state_dict();
    EXPECT_TRUE(model.unsharded());
    const int64_t calls = e->calls();
    EXPECT_FALSE(net.second.weight.value().isnan().any().item<bool>());
    EXPECT_EQ(e->calls(), calls);
    model.reshard();
    EXPECT_FALSE(model.unsharded());
    model.state_dict();
    EXPECT_FALSE(model.unsharded());
  });
}

// A rank without a part of any gradient sends the same call as the others.
TEST(Sharding, NormsOfBfloat16AndOfRanksWithoutGradients) {
  for (const DType t : {DType::f32, DType::bf16, DType::f64})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      ShardedMlp::Net net;
      net.to(t);
      DataParallel model(net, {.sharding = Sharding::zero2}, e);
      const Param first = model.parameters()[0];
      if (e->rank() == 0)
        first.set_grad(cat({full({1}, 3.0, t), zeros({first.numel() - 1}, t)}, 0));
      for (const double p : {2.0, std::numeric_limits<double>::infinity()}) {
        const Tensor norm = model.clip_grad_norm_(1e9, p);
        EXPECT_EQ(norm.dtype(), t);
        EXPECT_NEAR(norm.to(DType::f64).item<double>(), 3, 1e-6);
      }
    });
}

TEST(Sharding, WhatIsRefused) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(5);
    ShardedMlp::Net net;
    DataParallel model(net, {.sharding = Sharding::zero2}, e);
    optim::LAMB opt(net.parameters());
    EXPECT_TRUE(has(thrown([&] { model.shard_optimizer(opt); }, ErrorKind::Unsupported),
                    "LAMB on parts of parameters"));
    EXPECT_TRUE(
        has(thrown([&] { optim::LAMB of_parts(model.parameters()); }, ErrorKind::Unsupported),
            "LAMB on parts of parameters"));
    // Gradients leave the net's parameters: an optimizer of those would do nothing.
    optim::AdamW whole(net.parameters());
    EXPECT_TRUE(has(thrown([&] { whole.step(); }, ErrorKind::Unsupported), "shard_optimizer()"));
    model.shard_optimizer(whole);
    whole.step();
  });
  for (const Sharding s : kAll) {
    const std::vector<std::string> texts =
        errors_of_ranks(2, [&](const std::shared_ptr<Engine>& e) {
          ShardedMlp::Net net;
          DataParallel model(net, {.bucket_cap_mb = -1, .sharding = s}, e);
        });
    for (const std::string& text : texts) EXPECT_TRUE(has(text, "more than 0 MB")) << text;
  }
  const std::vector<std::string> errors = errors_of_ranks(2, [](const std::shared_ptr<Engine>& e) {
    ShardedMlp::Net net;
    DataParallel model(net, {.sharding = e->rank() ? Sharding::zero3 : Sharding::zero2}, e);
  });
  EXPECT_TRUE(has(errors[0], "sharding=2")) << errors[0];
}

}  // namespace
}  // namespace tandem::distributed
