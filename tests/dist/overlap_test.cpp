// SPDX-License-Identifier: Apache-2.0
// Compiled steps reduce gradients while the rest of the backward pass runs: where the calls stand
// in the program, parameters that are read in several ways, and steps that throw in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "tandem/compile/compile.h"
#include "tandem/compile/run/executable.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/process_group.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using namespace std::chrono_literals;

struct Deep : nn::Module {
  nn::Linear a{32, 32}, b{32, 32}, c{32, 32}, d{32, 3};
  Deep() { TD_REGISTER(a, b, c, d); }
  Tensor forward(Tensor x) { return d(tanh(c(tanh(b(tanh(a(x))))))); }
};

auto whole_step(DataParallel& model, optim::Optimizer& opt) {
  return [&](Tensor x) {
    opt.zero_grad();
    const Tensor loss = model(x).square().mean();
    loss.backward();
    opt.step();
    return loss;
  };
}

std::vector<std::string> steps_of(const Executable& e) {
  std::vector<std::string> lines;
  std::istringstream text(e.to_string());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(Overlap, BucketsStartInsideTheBackwardPass) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(3);
    Deep net;
    DataParallel model(net, {.bucket_cap_mb = 0.002, .first_bucket_mb = 0.002}, e);
    optim::AdamW opt(net.parameters(), {.lr = 0.01});
    auto step = compile(whole_step(model, opt));
    for (int k = 0; k < 3; ++k) step(ones({4, 32}) * (e->rank() + 1));
    const std::vector<std::string> steps = steps_of(*step.executable());
    size_t starts = 0, products_between = 0, waits_between = 0, starts_seen = 0;
    for (const std::string& s : steps) starts += has(s, "all_reduce_start");
    for (const std::string& s : steps) {
      starts_seen += has(s, "all_reduce_start");
      if (starts_seen == 0 || starts_seen == starts) continue;
      products_between += has(s, "matmul") || has(s, "linear");
      waits_between += has(s, "all_reduce_wait");
    }
    EXPECT_GE(starts, 3U);
    EXPECT_GE(products_between, starts - 1) << step.executable()->to_string();
    EXPECT_EQ(waits_between, 0U) << step.executable()->to_string();
    // What has come is updated before the last bucket is waited for.
    size_t updates = 0, waits = 0, updates_before_last = 0;
    for (const std::string& s : steps) {
      updates += has(s, "adamw_update");
      if (!has(s, "all_reduce_wait")) continue;
      ++waits;
      updates_before_last = updates;
    }
    EXPECT_EQ(waits, starts) << step.executable()->to_string();
    EXPECT_GE(updates_before_last, 2 * (waits - 1)) << step.executable()->to_string();
    // Gradients are made in their places in the buckets and read there.
    for (const std::string& s : steps)
      EXPECT_FALSE(has(s, "cat") || has(s, "copy")) << step.executable()->to_string();
  });
}

// Where the calls of a sharded step stand in its program.
struct Calls {
  std::string
      order;  ///< G a gather starts, g is waited for; R, r the same of gradients; . products
  explicit Calls(const Executable& e) {
    for (const std::string& s : steps_of(e)) {
      if (has(s, "gather_start")) order += 'G';
      if (has(s, "gather_wait")) order += 'g';
      if (has(s, "scatter_sum_start")) order += 'R';
      if (has(s, "scatter_sum_wait")) order += 'r';
      if (has(s, "matmul") || has(s, "linear")) order += '.';
    }
  }
};
TEST(Overlap, ParametersAreGatheredAheadAndAgainForTheBackwardPass) {
  for (const Sharding s : {Sharding::zero2, Sharding::zero3})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(3);
      Deep net;
      DataParallel model(net, {.bucket_cap_mb = 0.005, .sharding = s}, e);
      optim::AdamW opt(model.parameters(), {.lr = 0.01});
      auto step = compile(whole_step(model, opt));
      const int64_t before = e->calls();
      for (int k = 0; k < 3; ++k) step(ones({4, 32}) * (e->rank() + 1));
      const std::string order = Calls(*step.executable()).order;
      const bool again = s == Sharding::zero3;
      // Four units. The first is not needed for the gradients, the last is still here.
      EXPECT_EQ(std::count(order.begin(), order.end(), 'G'), again ? 6 : 4) << order;
      EXPECT_EQ(std::count(order.begin(), order.end(), 'R'), 4) << order;
      EXPECT_EQ(e->calls(), before + 3 * (again ? 10 : 8)) << order;
      // One unit comes while the program computes with the one before.
      EXPECT_EQ(order.find("GGG"), order.npos) << order;
      EXPECT_TRUE(order.starts_with("GgG.gG.gG.g")) << order;
    });
}

/// One matrix is used twice, as it is and transposed; another only in the part under no_sync().
struct Tied : nn::Module {
  Param table{randn({6, 8}) * 0.1}, side{randn({8}) * 0.1};
  Tied() { TD_REGISTER(table, side); }
  Tensor forward(Tensor ids) { return matmul(embedding(ids, table), table.t()); }
};
TEST(Overlap, SharedAndAccumulatedParametersHaveEagerBits) {
  std::vector<Tensor> states[2];
  for (const bool compiled : {false, true})
    run_ranks(2, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(4);
      Tied net;
      DataParallel model(net, {.first_bucket_mb = 0.0001}, e);
      optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
      const auto step = [&](Tensor ids) {
        opt.zero_grad();
        {
          const auto hold = model.no_sync();
          ((net.table + net.side).square().mean() * 0.5).backward();
        }
        const Tensor loss = model(ids).square().mean();
        loss.backward();
        opt.step();
        return loss;
      };
      auto program = compile(step);
      for (int k = 0; k < 4; ++k) {
        const Tensor ids = tensor({k % 6, (k + 1 + e->rank()) % 6});
        if (compiled)
          program(ids);
        else
          step(ids);
      }
      if (e->rank() == 0)
        for (const auto& [name, value] : net.state_dict())
          states[compiled].push_back(value.clone());
      // The same on both ranks: the part without exchange was reduced, too.
      for (const auto& [name, value] : net.state_dict()) {
        const Tensor all = all_gather(value, e);
        EXPECT_TRUE(same_bits(all.select(0, 0), all.select(0, 1))) << name;
      }
    });
  ASSERT_EQ(states[0].size(), 2U);
  for (size_t i = 0; i < states[0].size(); ++i)
    EXPECT_TRUE(same_bits(states[0][i], states[1][i])) << i;
}

// A step that reads a value runs in segments, and op by op where that is faster: not where it
// reduces gradients, as that is another sequence of calls, and every rank has its own clock.
TEST(Overlap, StepsThatReadValuesGoTheSameWayOnAllRanks) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    manual_seed(3);
    Deep net;
    DataParallel model(net, {}, e);
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    auto step = compile(
        [&](Tensor x) {
          opt.zero_grad();
          const Tensor loss = model(x).square().mean();
          // Each rank finds another of the two ways slow.
          if (is_tracing() == (e->rank() == 0)) std::this_thread::sleep_for(1ms);
          if (loss.item<float>() < 100) loss.backward();
          opt.step();
          return loss;
        },
        {.control = Control::eager});
    for (int k = 0; k < 80; ++k) step(ones({4, 32}));
    EXPECT_GT(step.stats().segments, 80);
  });
}

// What is between start and wait throws on one rank: its memory is not written any more when the
// call has returned, and the other rank hears of it.
TEST(Overlap, AStepThatThrowsEndsWhatItStarted) {
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    auto program = compile([&](Tensor x, Tensor at) {
      const Tensor started = detail::start_all_reduce(x * 2, e, {"bucket 0"});
      const Tensor row = index_select(x, 0, at).sum();
      return detail::wait_all_reduce(started, e) + row;
    });
    const Tensor x = ones({1 << 16});
    for (int k = 0; k < 3; ++k)
      EXPECT_EQ(program(x, tensor({k})).min().item<float>(), 5) << e->rank();
    const std::string text = thrown([&] {
      program(x, tensor({e->rank() == 0 ? 1 << 20 : 1}));
      program(x, tensor({1}));  // the other rank may have had its sum before the first one threw
    });
    EXPECT_TRUE(has(text, e->rank() == 0 ? "index" : "a step of a compiled function has thrown"))
        << text;
  });
}

}  // namespace
}  // namespace tandem::distributed
