// SPDX-License-Identifier: Apache-2.0
// Training states: an agent that was stopped, saved and loaded by another one continues with the
// bits of an undisturbed run; states of other agents are rejected and change nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tandem/rl/rl.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/support/states.h"

namespace tandem::rl {
namespace {

using Make = std::function<std::unique_ptr<Agent>(bool compile, uint64_t seed)>;

template <class A, class Options>
Make make(const char* env, Options options) {
  return [=](bool compile, uint64_t seed) {
    Options o = options;
    o.compile = compile;
    o.seed = seed;
    return std::make_unique<A>(env, o);
  };
}

struct ResumeRow {
  const char* name;
  Make make;
  int64_t steps;
  std::vector<int64_t> stops;  // steps at which it continues in another agent
};

// Memory that has wrapped around, and one that has not; stops within and between episodes.
std::vector<ResumeRow> rows() {
  const DQNOptions dqn{.buffer_size = 128,
                       .learning_starts = 32,
                       .batch_size = 16,
                       .target_update_interval = 50,
                       .exploration_fraction = 0.5,
                       .net_arch = {8}};
  DQNOptions all = dqn;
  all.buffer_size = 1000;
  all.double_q = all.dueling = all.prioritized = all.linear_schedule = true;
  const PPOOptions ppo{.n_envs = 2,
                       .n_steps = 16,
                       .batch_size = 16,
                       .n_epochs = 2,
                       .linear_schedule = true,
                       .net_arch = {8}};
  return {
      {"dqn", make<DQN>("CartPole-v1", dqn), 300, {20, 100, 260}},
      {"dqn, all of it", make<DQN>("CartPole-v1", all), 300, {20, 120}},
      {"dqn, acrobot", make<DQN>("Acrobot-v1", dqn), 120, {60}},
      {"a2c",
       make<A2C>("CartPole-v1", A2COptions{.n_envs = 3, .linear_schedule = true, .net_arch = {8}}),
       300,
       {15, 150}},
      {"a2c, pendulum", make<A2C>("Pendulum-v1", A2COptions{.net_arch = {8}}), 250, {105, 210}},
      {"ppo", make<PPO>("CartPole-v1", ppo), 320, {32, 192}},
      {"ppo, mountain car", make<PPO>("MountainCar-v0", ppo), 480, {416}},
      {"sac",
       make<SAC>(
           "Pendulum-v1",
           SACOptions{.buffer_size = 64, .learning_starts = 20, .batch_size = 8, .net_arch = {8}}),
       90,
       {10, 50, 80}},
      {"sac, mountain car",
       make<SAC>(
           "MountainCarContinuous-v0",
           SACOptions{.learning_starts = 20, .batch_size = 8, .ent_coef = 0.1, .net_arch = {8}}),
       60,
       {40}},
  };
}

TEST(Resume, HasTheSameBits) {
  TempFolder folder;
  for (const bool compile : {false, true})
    for (const ResumeRow& row : rows()) {
      SCOPED_TRACE(fmt::format("{}, compile {}", row.name, compile));
      const auto whole = row.make(compile, 3);
      whole->learn(row.steps);
      const StateDict want = whole->training_state();
      auto agent = row.make(compile, 3);
      for (size_t i = 0; i <= row.stops.size(); ++i) {
        const int64_t stop = i < row.stops.size() ? row.stops[i] : row.steps + 1000;
        const ProgressFn until = [&](const Progress& p) { return p.steps < stop; };
        if (i == 0)
          agent->learn(row.steps, until);
        else
          agent->resume(until);
        if (i == row.stops.size()) break;
        EXPECT_GE(agent->progress().steps, stop);
        EXPECT_LT(agent->progress().steps, row.steps);
        const std::string path = folder / "state.safetensors";
        save(agent->training_state(), path);
        agent = row.make(compile, 100 + i);  // the seed is the state's
        agent->load_training_state(load(path));
        expect_same(agent->training_state(), load(path));
      }
      expect_same(agent->training_state(), want);
      EXPECT_EQ(agent->progress().mean_reward, whole->progress().mean_reward);
      agent->resume();  // at its end there is nothing to do
      expect_same(agent->training_state(), want);
    }
}

TEST(Resume, AnAgentThatHasRunGoesBack) {
  for (const bool compile : {false, true}) {
    PPO ppo("CartPole-v1",
            {.n_steps = 32, .batch_size = 16, .n_epochs = 2, .net_arch = {8}, .compile = compile});
    ppo.learn(64);
    const StateDict then = ppo.training_state();
    ppo.learn(96);
    const StateDict want = ppo.training_state();
    ppo.load_training_state(then);
    ppo.learn(96);
    expect_same(ppo.training_state(), want);
  }
}

// Twice as long: like a run of that length from there on.
TEST(Resume, ToAnotherEnd) {
  const A2COptions o{.n_steps = 10, .linear_schedule = true, .net_arch = {8}};
  A2C a("CartPole-v1", o);
  a.learn(100);
  a.resume({}, 200);
  EXPECT_EQ(a.progress().steps, 200);
  EXPECT_NEAR(a.training_state().at("optimizer.param_groups.0.lr").item<double>(), 7e-4 * 0.05,
              1e-12);
}

TEST(Resume, OptimizersOfNetsWithTheSameNames) {
  nn::Linear a(2, 3), b(2, 3);
  std::vector<Param> both = a.parameters();
  for (const Param& p : b.parameters()) both.push_back(p);
  optim::Adam one(both, {.lr = 0.1}), two(both, {.lr = 0.1});
  (a(ones({1, 2})).sum() + 3 * b(ones({1, 2})).sum()).backward();
  one.step();
  const StateDict state = one.state_dict();
  two.load_state_dict(state);
  expect_same(two.state_dict(), state);
  EXPECT_FLOAT_EQ(state.at("2.exp_avg").sum().item<float>(),
                  3 * state.at("0.exp_avg").sum().item<float>());
}

TEST(Resume, RefusesOtherStates) {
  const auto fresh = [] {
    return std::make_unique<DQN>("CartPole-v1", DQNOptions{.buffer_size = 64,
                                                           .learning_starts = 8,
                                                           .batch_size = 4,
                                                           .prioritized = true,
                                                           .net_arch = {8},
                                                           .compile = false});
  };
  const auto agent = fresh();
  agent->learn(40);
  const StateDict good = agent->training_state();
  using Change = std::function<void(StateDict&)>;
  const auto put = [](const char* name, const Tensor& value) {
    return [=](StateDict& s) { s[name] = value; };
  };
  const auto of = [](const auto& a) { return [&a](StateDict& s) { s = a.training_state(); }; };
  const DQN acrobot("Acrobot-v1", {.buffer_size = 64});
  const DQN small("CartPole-v1", {.buffer_size = 32, .net_arch = {8}});
  const DQN wide("CartPole-v1", {.buffer_size = 64, .prioritized = true, .net_arch = {9}});
  const A2C a2c("CartPole-v1");
  const std::pair<Change, const char*> kBad[] = {
      {[](StateDict& s) { s.erase("buffer.powers"); }, "the state has no 'buffer.powers'"},
      {[](StateDict& s) { s.erase("optimizer.net.0.weight.exp_avg"); },
       "the state has no 'optimizer.net.0.weight.exp_avg'"},
      {put("more", tensor(1)), "the state holds 'more', which this agent has not"},
      {of(a2c), "'agent' is DQN here, A2C in the state"},
      {of(acrobot), "'env.name' is CartPole-v1 here, Acrobot-v1 in the state"},
      {of(wide), "'net.net.0.weight' is float32 [8, 4] here, float32 [9, 4] in the state"},
      {of(small), "'buffer.capacity' is 64 here, 32 in the state"},
      {put("obs", zeros({1, 3})), "'obs' is float32 [n, 4] here, float32 [1, 3] in the state"},
      {put("obs", zeros({2, 4})), "'obs' cannot be 2"},
      {put("progress.steps", tensor(3.0, DType::f64)),
       "'progress.steps' is int64 [] here, float64 [] in the state"},
      {put("progress.steps", tensor(-1)), "'progress.steps' cannot be -1"},
      {put("buffer.size", tensor(65)), "'buffer.size' cannot be 65"},
      {put("buffer.next", tensor(7)), "'buffer.next' cannot be 7"},
      {put("buffer.rewards", zeros({39, 1})), "'buffer.rewards' is float32 [40, 1] here"},
      {put("buffer.actions", full({40, 1}, 0.5)), "'buffer.actions' cannot be 0.5"},
      {put("buffer.powers", full({40}, NAN, DType::f64)), "'buffer.powers' cannot be nan"},
      {put("env.tasks", full({1, 4}, INFINITY, DType::f64)), "'env.tasks' cannot be inf"},
      {put("env.lengths", tensor({-2})), "'env.lengths' cannot be -2"},
      {put("env.started", tensor(2)), "'env.started' cannot be 2"},
  };
  const auto other = fresh();
  const StateDict before = other->training_state();
  for (const auto& [change, want] : kBad) {
    StateDict bad;
    for (const auto& [name, value] : good) bad[name] = value;
    change(bad);
    try {
      other->load_training_state(bad);
      ADD_FAILURE() << "nothing was thrown for: " << want;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value) << want;
      EXPECT_NE(std::string(e.what()).find(want), std::string::npos) << e.what();
    }
    expect_same(other->training_state(), before);
  }
  other->load_training_state(good);
  expect_same(other->training_state(), good);
  EXPECT_THROW(other->learn(-1), Error);
  EXPECT_THROW(other->resume({}, -1), Error);
}

}  // namespace
}  // namespace tandem::rl
