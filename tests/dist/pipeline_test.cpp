// SPDX-License-Identifier: Apache-2.0
// Nets that are cut along their depth: the order of passes, losses and gradients against one rank,
// and pipelines beside tensor and data parallel.
#include "tandem/dist/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tandem/dist/data_parallel.h"
#include "tandem/dist/device_mesh.h"
#include "tandem/dist/tensor_parallel.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using Group = std::shared_ptr<Engine>;

// ---- order of passes

/// Run the ranks' lists at once, a pass a tick, where a pass waits for what it needs: how many
/// ticks that takes, 0 where they wait for each other for ever; the most microbatches that a rank
/// holds.
struct Simulated {
  int64_t ticks = 0, most_held = 0;
};
Simulated simulate(PipelineKind kind, int64_t ranks, int64_t stages, int64_t n) {
  std::vector<std::vector<PipelineAction>> lists;
  for (int64_t r = 0; r < ranks; ++r) lists.push_back(pipeline_actions(kind, r, ranks, stages, n));
  std::set<std::tuple<bool, int64_t, int64_t>> done;
  std::vector<size_t> at(lists.size(), 0);
  std::vector<int64_t> held(lists.size(), 0);
  Simulated s;
  const int64_t last = ranks * stages - 1;
  const auto ready = [&](const PipelineAction& a) {
    if (a.forward) return a.stage == 0 || done.count({true, a.stage - 1, a.microbatch}) > 0;
    return done.count({true, a.stage, a.microbatch}) > 0 &&
           (a.stage == last || done.count({false, a.stage + 1, a.microbatch}) > 0);
  };
  for (;;) {
    std::vector<std::pair<size_t, PipelineAction>> now;
    bool all = true;
    for (size_t r = 0; r < lists.size(); ++r) {
      if (at[r] == lists[r].size()) continue;
      all = false;
      if (ready(lists[r][at[r]])) now.emplace_back(r, lists[r][at[r]]);
    }
    if (all) return s;
    if (now.empty()) return {};
    ++s.ticks;
    for (const auto& [r, a] : now) {
      EXPECT_EQ(a.stage % ranks, static_cast<int64_t>(r));
      EXPECT_TRUE(done.insert({a.forward, a.stage, a.microbatch}).second);
      ++at[r];
      held[r] += a.forward ? 1 : -1;
      s.most_held = std::max(s.most_held, held[r]);
    }
  }
}

TEST(PipelineActions, EveryPassIsMadeOnceAndNobodyWaitsForEver) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const int64_t n : {1, 2, 3, 4, 8, 16, 24}) {
      const std::string what = fmt::format("{} ranks, {} microbatches", ranks, n);
      // Passes of equal length: n of each kind, and a pause of ranks - 1 at both ends.
      const Simulated gpipe = simulate(PipelineKind::gpipe, ranks, 1, n);
      EXPECT_EQ(gpipe.ticks, 2 * (n + ranks - 1)) << what;
      EXPECT_EQ(gpipe.most_held, n) << what;
      const Simulated early = simulate(PipelineKind::one_f_one_b, ranks, 1, n);
      EXPECT_EQ(early.ticks, 2 * (n + ranks - 1)) << what;
      EXPECT_EQ(early.most_held, std::min(n, ranks)) << what;
      for (const int64_t stages : {1, 2, 3, 4}) {
        if (n % ranks > 0) continue;
        const Simulated s = simulate(PipelineKind::interleaved, ranks, stages, n);
        EXPECT_GT(s.ticks, 0) << what << ", " << stages << " stages";
        // The pause is that of one stage, however many there are (Narayanan et al. 2021, 2.2).
        EXPECT_LE(s.ticks, 2 * (n * stages + ranks - 1) + (n == ranks ? ranks * stages : 0))
            << what << ", " << stages << " stages";
      }
    }
}
TEST(PipelineActions, WhatDoesNotFitIsRefused) {
  EXPECT_TRUE(
      has(thrown([] { pipeline_actions(PipelineKind::interleaved, 0, 4, 2, 6); }, ErrorKind::Value),
          "a multiple of 4 microbatches"));
  EXPECT_TRUE(
      has(thrown([] { pipeline_actions(PipelineKind::gpipe, 0, 4, 2, 8); }, ErrorKind::Value),
          "need the interleaved schedule"));
  EXPECT_TRUE(
      has(thrown([] { pipeline_actions(PipelineKind::gpipe, 4, 4, 1, 8); }, ErrorKind::Value),
          "rank 4 of 4"));
}

// Against every way to cut.
TEST(PipelineSplit, IsTheBest) {
  const GeneratorGuard random({3, 0});
  for (int round = 0; round < 50; ++round) {
    const int64_t n = 3 + round % 6, stages = 1 + round % 3;
    const std::vector<double> costs = rand({n}, DType::f64).to_vector<double>();
    const auto cost_of = [&](const std::vector<int64_t>& split) {
      double most = 0;
      for (size_t s = 0; s < split.size(); ++s) {
        const int64_t end = s + 1 < split.size() ? split[s + 1] : n;
        double sum = 0;
        for (int64_t i = split[s]; i < end; ++i) sum += costs[static_cast<size_t>(i)];
        most = std::max(most, sum);
      }
      return most;
    };
    double best = 1e9;
    for (int64_t a = 1; a < n; ++a)
      for (int64_t b = a + 1; b <= n; ++b) {
        if (stages == 1) best = std::min(best, cost_of({0}));
        if (stages == 2) best = std::min(best, cost_of({0, a}));
        if (stages == 3 && b < n) best = std::min(best, cost_of({0, a, b}));
      }
    const std::vector<int64_t> split = balanced_split(costs, stages);
    ASSERT_EQ(split.size(), static_cast<size_t>(stages));
    EXPECT_EQ(split[0], 0);
    for (size_t s = 1; s < split.size(); ++s) EXPECT_GT(split[s], split[s - 1]);
    EXPECT_NEAR(cost_of(split), best, 1e-12);
  }
  EXPECT_TRUE(has(thrown(
                      [] {
                        balanced_split({1, 2}, 3);
                      },
                      ErrorKind::Value),
                  "2 layers do not make 3 stages"));
}

// ---- training

nn::Sequential chain() {
  nn::Sequential net;
  net.append(nn::Embedding(17, 12));
  for (int i = 0; i < 4; ++i) {
    net.append(nn::TransformerEncoderLayer(
        12, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true}));
  }
  net.append(nn::LayerNorm({12}));
  net.append(nn::Linear(12, 17));
  net.append(nn::Tanh());
  return net;
}
Tensor chain_loss(const Tensor& out, const Tensor& y) {
  return cross_entropy(out.flatten(0, 1), y.flatten());
}
std::pair<Tensor, Tensor> chain_batch(int step) {
  const GeneratorGuard random({77, static_cast<uint64_t>(step) * 8});
  return {randint(0, 17, {8, 3}), randint(0, 17, {8, 3})};
}

struct PipelineRun {
  StateDict state;
  std::vector<double> losses;
};
constexpr int kSteps = 20;

// One rank, the whole batch at once or in microbatches.
PipelineRun train_chain(int64_t microbatches) {
  manual_seed(5);
  nn::Sequential net = chain();
  optim::AdamW opt(net.parameters(), {.lr = 3e-3, .eps = 1e-4});
  PipelineRun run;
  for (int step = 0; step < kSteps; ++step) {
    const auto [x, y] = chain_batch(step);
    opt.zero_grad();
    double sum = 0;
    for (int64_t i = 0; i < microbatches; ++i) {
      const int64_t rows = 8 / microbatches;
      const Tensor loss =
          chain_loss(net(narrow(x, 0, i * rows, rows)), narrow(y, 0, i * rows, rows)) /
          static_cast<double>(microbatches);
      loss.backward();
      sum += loss.item<float>();
    }
    opt.step();
    run.losses.push_back(sum);
  }
  run.state = net.state_dict();
  return run;
}

PipelineRun train_pipeline(PipelineKind kind, int ranks, int64_t stages, int64_t microbatches) {
  PipelineRun run;
  std::mutex lock;
  run_ranks(ranks, [&](const Group& e) {
    manual_seed(5);
    const nn::Sequential net = chain();
    const int64_t all = ranks * stages;
    std::vector<int64_t> split;
    for (int64_t s = 0; s < all; ++s) split.push_back(s * 8 / all);
    std::vector<nn::Sequential> parts;
    for (int64_t s = 0; s < stages; ++s)
      parts.push_back(stage_of(net, split, e->rank() + s * ranks));
    std::vector<PipelineStage> own;
    std::vector<Param> params;
    for (int64_t s = 0; s < stages; ++s) {
      own.emplace_back(parts[static_cast<size_t>(s)], e->rank() + s * ranks, all);
      for (const Param& p : parts[static_cast<size_t>(s)].parameters()) params.push_back(p);
    }
    PipelineSchedule schedule(kind, own, microbatches, chain_loss, e);
    std::optional<optim::AdamW> opt;
    if (!params.empty()) opt.emplace(params, optim::AdamWOptions{.lr = 3e-3, .eps = 1e-4});
    for (int step = 0; step < kSteps; ++step) {
      const auto [x, y] = chain_batch(step);
      if (opt) opt->zero_grad();
      const bool first = e->rank() == 0, last = e->rank() + 1 == ranks;
      const Tensor loss = schedule.step(first ? x : Tensor(), last ? y : Tensor());
      if (opt) opt->step();
      const std::lock_guard hold(lock);
      if (first) run.losses.push_back(loss.item<double>());
    }
    if (kind == PipelineKind::one_f_one_b) {
      EXPECT_LE(schedule.most_held(), std::min<int64_t>(microbatches, ranks - e->rank()));
    }
    // The keys are those of the whole net.
    const std::lock_guard hold(lock);
    for (const nn::Sequential& part : parts)
      for (const auto& [name, value] : part.state_dict()) run.state[name] = value;
  });
  return run;
}

void expect_near(const PipelineRun& a, const PipelineRun& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < b.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-5) << what << ", step " << i;
  }
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, value] : b.state)
    EXPECT_TRUE(allclose(a.state.at(name), value, 0, 1e-5)) << name << ", " << what;
}

TEST(Pipeline, AllSchedulesAreThatOfOneRank) {
  const PipelineRun whole = train_chain(1), micro = train_chain(8), four = train_chain(4);
  expect_near(micro, whole, "microbatches");
  // Gradients of microbatches are added in one order everywhere, so parameters have the same bits.
  const auto check = [](const PipelineRun& run, const PipelineRun& one, const std::string& what) {
    for (const auto& [name, value] : one.state)
      EXPECT_TRUE(same_bits(run.state.at(name), value)) << name << ", " << what;
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i], one.losses[i], 1e-6) << what;
    }
  };
  for (const int ranks : {1, 2, 4}) {
    const std::string what = fmt::format(" on {} ranks", ranks);
    check(train_pipeline(PipelineKind::gpipe, ranks, 1, 8), micro, "gpipe" + what);
    check(train_pipeline(PipelineKind::one_f_one_b, ranks, 1, 8), micro, "1f1b" + what);
    check(train_pipeline(PipelineKind::interleaved, ranks, 2, 8), micro, "interleaved" + what);
    check(train_pipeline(PipelineKind::interleaved, ranks, 2, 4), four, "interleaved, 4" + what);
  }
}

TEST(Pipeline, EvaluationGivesTheResultOnTheLastRank) {
  manual_seed(5);
  nn::Sequential whole = chain();
  const Tensor x = chain_batch(0).first;
  const Tensor expected = whole(x);
  run_ranks(2, [&](const Group& e) {
    manual_seed(5);
    const nn::Sequential net = chain();
    nn::Sequential part = stage_of(net, {0, 3}, e->rank());
    Schedule1F1B schedule({part, e->rank(), 2}, 4, chain_loss, e);
    const Tensor y = schedule.eval(e->rank() == 0 ? x : Tensor());
    EXPECT_EQ(y.defined(), e->rank() == 1);
    if (y.defined()) {
      EXPECT_TRUE(allclose(y, expected, 0, 1e-6));
    }
  });
}

TEST(Pipeline, LayersAreCutByMeasuredTime) {
  run_ranks(2, [](const Group& e) {
    nn::Sequential net;
    for (int i = 0; i < 6; ++i)
      net.append(nn::Linear(i < 2 ? 192 : 8, i == 1 ? 8 : i < 2 ? 192 : 8));
    net[4].parameters()[1].set_grad(ones({8}));
    const std::vector<int64_t> split = split_by_time(net, randn({256, 192}), 2, e);
    ASSERT_EQ(split.size(), 2u);
    EXPECT_EQ(split[0], 0);
    EXPECT_LE(split[1], 2);  // the first layer costs more than all the others
    EXPECT_FALSE(net[0].parameters()[0].grad().defined());
    EXPECT_TRUE(net[4].parameters()[1].grad().defined());
    int64_t most = split[1];
    e->all_reduce({&most, 1, DType::i64}, ReduceOp::max).wait();
    EXPECT_EQ(most, split[1]);
  });
}

// What others have sent into a step that threw must not be taken for the next one's.
TEST(Pipeline, NoStepFollowsOneThatHasThrown) {
  run_ranks(1, [](const Group& e) {
    nn::Sequential part(nn::Linear(4, 4));
    int calls = 0;
    Schedule1F1B schedule(
        {part, 0, 1}, 1, [&](const Tensor& y, const Tensor&) { return ++calls == 2 ? y : y.sum(); },
        e);
    const Tensor x = ones({2, 4});
    EXPECT_GT(schedule.step(x, x).numel(), 0);
    EXPECT_TRUE(has(thrown([&] { schedule.step(x, x); }, ErrorKind::Shape), "one element"));
    EXPECT_TRUE(has(thrown([&] { schedule.step(x, x); }, ErrorKind::Value), "has thrown"));
  });
}

TEST(Pipeline, WrongUseIsRefused) {
  run_ranks(2, [](const Group& e) {
    nn::Sequential part(nn::Linear(4, 4));
    EXPECT_TRUE(has(thrown(
                        [&] {
                          Schedule1F1B({part, 1 - e->rank(), 2}, 4, chain_loss, e);
                        },
                        ErrorKind::Value),
                    "Stage i belongs to rank i % ranks."));
    EXPECT_TRUE(has(thrown(
                        [&] {
                          Schedule1F1B({part, e->rank(), 4}, 4, chain_loss, e);
                        },
                        ErrorKind::Value),
                    "of 4"));
    Schedule1F1B schedule({part, e->rank(), 2}, 4, chain_loss, e);
    const bool first = e->rank() == 0;
    const std::string none = first ? "expects x, got none" : "expects target, got none";
    EXPECT_TRUE(has(thrown([&] { schedule.step(); }, ErrorKind::Value), none));
    const Tensor six = ones({6, 4});
    EXPECT_TRUE(has(thrown([&] { schedule.step(first ? six : Tensor(), first ? Tensor() : six); },
                           ErrorKind::Shape),
                    "[6, 4] does not divide into 4 microbatches"));
  });
}

// ---- three ways at once

TEST(Pipeline, WithTensorAndDataParallelOnEightRanks) {
  const PipelineRun whole = train_chain(1);
  PipelineRun run;
  std::mutex lock;
  run_ranks(8, [&](const Group& e) {
    const DeviceMesh mesh = init_device_mesh({2, 2, 2}, {"pp", "dp", "tp"}, e);
    manual_seed(5);
    const nn::Sequential net = chain();
    const int64_t stage = mesh.get_local_rank("pp");
    nn::Sequential part = stage_of(net, {0, 3}, stage);
    ParallelPlan plan = {{"*.self_attn", AttentionParallel{}},
                         {"*.linear1", ColwiseParallel{}},
                         {"*.linear2", RowwiseParallel{}}};
    if (stage == 0) plan.push_back({"0", RowwiseParallel{}});
    const TensorParallel spread = parallelize_module(part, plan, mesh["tp"]);
    DataParallel model(part, {}, mesh["dp"]);
    optim::AdamW opt(part.parameters(), {.lr = 3e-3, .eps = 1e-4});
    Schedule1F1B schedule({part, stage, 2}, 2, chain_loss, mesh["pp"]);
    for (int step = 0; step < kSteps; ++step) {
      const auto [x, y] = chain_batch(step);
      const int64_t row = mesh.get_local_rank("dp") * 4;
      opt.zero_grad();
      Tensor loss;
      {
        const auto hold = model.no_sync();
        loss = schedule.step(narrow(x, 0, row, 4), narrow(y, 0, row, 4));
      }
      model.reduce_gradients();
      opt.step();
      loss = all_reduce(loss, ReduceOp::sum, mesh["dp"]) / 2.0;
      const std::lock_guard hold(lock);
      if (e->rank() == 0) run.losses.push_back(loss.item<double>());
    }
    const StateDict state = spread.state_dict();
    const std::lock_guard hold(lock);
    if (mesh.get_local_rank("dp") == 0 && mesh.get_local_rank("tp") == 0)
      for (const auto& [name, value] : state) run.state[name] = value;
  });
  expect_near(run, whole, "pp x dp x tp");
}

}  // namespace
}  // namespace tandem::distributed
