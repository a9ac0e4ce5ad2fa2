// SPDX-License-Identifier: Apache-2.0
// Replay memory, and agents on short runs: they learn, repeat bit for bit, and are restored from a
// state_dict.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tandem/rl/rl.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::rl {
namespace {

const Space kObs{0, {0, 0}, {1, 1}}, kChoice{3, {}, {}}, kNumbers{0, {-1, -1}, {1, 1}};

// Transition number k: k determines everything in it.
void add(ReplayBuffer& b, float k) {
  VectorStep step;
  step.final_obs = tensor({{k + 0.25F, k + 0.5F}});
  step.rewards = tensor({10 * k});
  step.terminated = tensor({std::fmod(k, 2.0F) == 1.0F});
  b.add(tensor({{k, -k}}), tensor({static_cast<int64_t>(k) % 3}), step);
}

TEST(Replay, KeepsTheNewestAndWhatBelongsTogether) {
  ReplayBuffer b(5, kObs, kChoice);
  PhiloxStream random(1);
  for (int k = 0; k < 8; ++k) add(b, static_cast<float>(k));
  EXPECT_EQ(b.size(), 5);
  const Transitions t = b.sample(400, random);
  std::vector<int> seen(8);
  const auto obs = t.obs.to_vector<float>(), next = t.next_obs.to_vector<float>();
  const auto reward = t.rewards.to_vector<float>(), done = t.dones.to_vector<float>();
  const auto action = t.actions.to_vector<int64_t>();
  for (size_t i = 0; i < 400; ++i) {
    const float k = obs[2 * i];
    ++seen[static_cast<size_t>(k)];
    EXPECT_EQ(obs[2 * i + 1], -k);
    EXPECT_EQ(next[2 * i], k + 0.25F);
    EXPECT_EQ(reward[i], 10 * k);
    EXPECT_EQ(done[i], std::fmod(k, 2.0F));
    EXPECT_EQ(action[i], static_cast<int64_t>(k) % 3);
  }
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 0);
  for (int k = 3; k < 8; ++k) EXPECT_NEAR(seen[static_cast<size_t>(k)], 80, 40);
  EXPECT_EQ(t.weights.to_vector<float>(), std::vector<float>(400, 1.0F));
}

TEST(Replay, Errors) {
  PhiloxStream random(1);
  EXPECT_THROW(ReplayBuffer(0, kObs, kChoice), Error);
  ReplayBuffer b(4, kObs, kNumbers);
  EXPECT_THROW(b.sample(1, random), Error);
  EXPECT_THROW(add(b, 1), Error);  // one action, two wanted
  PrioritizedReplayBuffer p(4, kObs, kChoice);
  add(p, 1);
  EXPECT_THROW(p.update_priorities({1}, {1.0F}), Error);
  EXPECT_THROW(p.update_priorities({0}, {NAN}), Error);
  EXPECT_THROW(p.probability(1), Error);
}

TEST(Replay, DrawsByPriority) {
  PrioritizedReplayBuffer b(6, kObs, kChoice, {.alpha = 0.5, .beta = 1.0, .eps = 0});
  PhiloxStream random(2);
  for (int k = 0; k < 6; ++k) add(b, static_cast<float>(k));
  for (int64_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(b.probability(i), 1.0 / 6);
  const std::vector<float> errors = {1, 4, 9, 16, 25, 36};  // to the power 0.5: 1 .. 6, sum 21
  b.update_priorities({0, 1, 2, 3, 4, 5}, errors);
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(b.probability(i), static_cast<double>(i + 1) / 21, 1e-12);
  std::vector<int> seen(6);
  const Transitions t = b.sample(2100, random);
  const auto weights = t.weights.to_vector<float>();
  for (size_t i = 0; i < t.indices.size(); ++i) {
    ++seen[static_cast<size_t>(t.indices[i])];
    // 1 / (N p) over the largest, which is that of transition 0
    EXPECT_NEAR(weights[i], 1.0F / static_cast<float>(t.indices[i] + 1), 1e-5F);
  }
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(seen[static_cast<size_t>(i)], 100 * (i + 1), 2) << i;
}

// A short run of each agent, twice, and its state in a new one.
template <class A, class Options>
void repeats(const char* env, Options options, int64_t steps) {
  A a(env, options), b(env, options);
  a.learn(steps);
  b.learn(steps);
  Env one(env);
  const Tensor obs = one.reset({.seed = 3}).unsqueeze(0);
  EXPECT_EQ(a.predict(obs).template to_vector<float>(), b.predict(obs).template to_vector<float>());
  StateDict state = a.state_dict(), other = b.state_dict();
  ASSERT_GT(state.size(), 3U);
  for (const auto& [name, value] : state)
    EXPECT_EQ(value.template to_vector<float>(), other.at(name).template to_vector<float>())
        << name;
  options.seed = 17;
  A c(env, options);
  EXPECT_NE(c.state_dict().begin()->second.template to_vector<float>(),
            state.begin()->second.template to_vector<float>());
  c.load_state_dict(state);
  EXPECT_EQ(c.predict(obs).template to_vector<float>(), a.predict(obs).template to_vector<float>());
  EXPECT_GE(a.progress().steps, steps);
  EXPECT_TRUE(std::isfinite(a.progress().loss));
}

TEST(Agents, RepeatThemselves) {
  for (const bool compile : {false, true}) {
    SCOPED_TRACE(compile);
    repeats<DQN>("CartPole-v1",
                 DQNOptions{.double_q = true,
                            .dueling = true,
                            .prioritized = true,
                            .net_arch = {8},
                            .compile = compile},
                 300);
    repeats<DQN>("Acrobot-v1", DQNOptions{.net_arch = {8}, .compile = compile}, 300);
    repeats<A2C>("CartPole-v1", A2COptions{.n_envs = 2, .net_arch = {8}, .compile = compile}, 200);
    repeats<PPO>("CartPole-v1",
                 PPOOptions{.n_envs = 2,
                            .n_steps = 32,
                            .batch_size = 16,
                            .n_epochs = 2,
                            .net_arch = {8},
                            .compile = compile},
                 200);
    repeats<PPO>(
        "Pendulum-v1",
        PPOOptions{
            .n_steps = 64, .batch_size = 32, .n_epochs = 2, .net_arch = {8}, .compile = compile},
        200);
    repeats<SAC>("MountainCarContinuous-v0",
                 SACOptions{.batch_size = 16, .net_arch = {8}, .compile = compile}, 150);
  }
}

TEST(Agents, ActionsStayInRange) {
  SAC sac("Pendulum-v1", {.batch_size = 8, .net_arch = {8}});
  const Tensor obs = 50 * ones({16, 3});
  for (const bool deterministic : {true, false})
    for (const float a : sac.predict(obs, deterministic).to_vector<float>())
      EXPECT_LE(std::abs(a), 2.0F);
}

TEST(Agents, PpoLearnsCartPole) {
  PPO ppo("CartPole-v1", {.learning_rate = 1e-3,
                          .n_envs = 8,
                          .n_steps = 32,
                          .batch_size = 256,
                          .n_epochs = 20,
                          .gamma = 0.98,
                          .gae_lambda = 0.8,
                          .linear_schedule = true});
  const double before = evaluate_policy(ppo, "CartPole-v1", 10).mean_reward;
  int64_t calls = 0;
  ppo.learn(40'000, [&](const Progress& p) {
    ++calls;
    EXPECT_EQ(p.steps, 256 * calls);
    return true;
  });
  const Evaluation after = evaluate_policy(ppo, "CartPole-v1", 10);
  EXPECT_LT(before, 150);
  EXPECT_GT(after.mean_reward, 300) << "before " << before;
  EXPECT_EQ(after.rewards.size(), 10U);
}

TEST(Agents, Errors) {
  EXPECT_THROW(DQN("Pendulum-v1"), Error);
  EXPECT_THROW(SAC("CartPole-v1"), Error);
  EXPECT_THROW(PPO("CartPole-v1", {.n_steps = 100, .batch_size = 64}), Error);
  EXPECT_THROW(A2C("CartPole-v1", {.n_steps = 0}), Error);
  PPO ppo("CartPole-v1", {.n_steps = 64});
  EXPECT_THROW(ppo.load_state_dict(StateDict()), Error);
  EXPECT_THROW(evaluate_policy(ppo, "CartPole-v1", 0), Error);
  ppo.learn(1000, [](const Progress&) { return false; });
  EXPECT_EQ(ppo.progress().steps, 64);
}

}  // namespace
}  // namespace tandem::rl
