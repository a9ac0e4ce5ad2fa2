// SPDX-License-Identifier: Apache-2.0
// Environments against trajectories made by Gymnasium, and their interface.
#include "tandem/rl/env.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::rl {
namespace {

StateDict trajectories() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return load(std::string(root ? root : ".") + "/tests/rl/trajectories.safetensors");
}

struct EnvRow {
  const char* name;
  int64_t obs, actions;  // dims; choices, or -dims
  int64_t limit;
  double tolerance;  // of observations: Gymnasium's arithmetic, after up to 200 steps
};
constexpr EnvRow kRows[] = {
    {"CartPole-v1", 4, 2, 500, 1e-5},
    {"MountainCar-v0", 2, 3, 200, 1e-6},
    {"MountainCarContinuous-v0", 2, -1, 999, 1e-5},
    {"Pendulum-v1", 3, -1, 200, 1e-4},
    {"Acrobot-v1", 6, 3, 500, 1e-4},
};

TEST(Environments, StepAsGymnasiums) {
  const StateDict golden = trajectories();
  for (const EnvRow& row : kRows) {
    for (int run = 0; run < 3; ++run) {
      const std::string key = fmt::format("{}.{}.", row.name, run);
      SCOPED_TRACE(key);
      Env env(row.name);
      env.reset({.seed = 1});
      env.task().set_state(golden.at(key + "start").to_vector<double>());
      const Tensor& actions = golden.at(key + "actions");
      const auto want = golden.at(key + "obs").to_vector<float>();
      const auto rewards = golden.at(key + "rewards").to_vector<float>();
      const auto terminated = golden.at(key + "terminated").to_vector<uint8_t>();
      const auto truncated = golden.at(key + "truncated").to_vector<uint8_t>();
      ASSERT_GT(rewards.size(), 5U);
      size_t at = 0;
      for (size_t t = 0; t < rewards.size(); ++t) {
        const Step step = env.step(actions[static_cast<int64_t>(t)]);
        for (const float got : step.obs.to_vector<float>())
          ASSERT_NEAR(got, want[at++], row.tolerance) << "step " << t;
        ASSERT_NEAR(step.reward, static_cast<double>(rewards[t]), 10 * row.tolerance);
        ASSERT_EQ(step.terminated, terminated[t] != 0) << "step " << t;
        ASSERT_EQ(step.truncated, truncated[t] != 0) << "step " << t;
      }
    }
  }
}

TEST(Environments, Spaces) {
  for (const EnvRow& row : kRows) {
    SCOPED_TRACE(row.name);
    Env env(row.name);
    EXPECT_STREQ(env.name(), row.name);
    EXPECT_EQ(env.observation_space().dims(), row.obs);
    EXPECT_EQ(env.observation_space().high.size(), static_cast<size_t>(row.obs));
    EXPECT_EQ(env.action_space().n, std::max<int64_t>(row.actions, 0));
    EXPECT_EQ(env.action_space().dims(), row.actions > 0 ? 1 : -row.actions);
    EXPECT_EQ(env.task().max_episode_steps(), row.limit);
    const Tensor obs = env.reset({.seed = 5});
    EXPECT_EQ(obs.shape(), Shape(row.obs));
    EXPECT_EQ(env.reset({.seed = 5}).to_vector<float>(), obs.to_vector<float>());
    EXPECT_NE(env.reset().to_vector<float>(), obs.to_vector<float>());
    EXPECT_NE(env.reset({.seed = 6}).to_vector<float>(), obs.to_vector<float>());
  }
}

TEST(Environments, StartsFillGymnasiumsRange) {
  Env env("Pendulum-v1");
  double low = 10, high = -10;
  for (int i = 0; i < 400; ++i) {
    env.reset();
    const double theta = env.task().state()[0];
    low = std::min(low, theta);
    high = std::max(high, theta);
    ASSERT_LE(std::abs(theta), 3.15);
    ASSERT_LE(std::abs(env.task().state()[1]), 1.0);
  }
  EXPECT_LT(low, -3.0);
  EXPECT_GT(high, 3.0);
}

TEST(Environments, Errors) {
  const auto text = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(to_string(e.kind())) + ": " + e.what();
    }
    return std::string("nothing was thrown");
  };
  const auto has = [](const std::string& all, const char* part) {
    EXPECT_NE(all.find(part), std::string::npos) << all;
  };
  has(text([] { make_task("CartPole"); }), "CartPole-v1, MountainCar-v0");
  Env cart("CartPole-v1");
  has(text([&] { cart.step(0); }), "Call reset() first");
  cart.reset();
  has(text([&] { cart.step(2); }), "one of 0 .. 1, got 2");
  has(text([&] { cart.step(tensor({0, 1})); }), "1 action(s) of 1 number(s) are expected, got [2]");
  Env pendulum("Pendulum-v1");
  pendulum.reset();
  has(text([&] { pendulum.step(1); }), "an action is a tensor");
  has(text([&] { pendulum.step(tensor({NAN})); }), "an action is nan");
  has(text([] { VectorEnv("CartPole-v1", 0); }), "1 to 2^20 environments, got 0");
  VectorEnv vector("CartPole-v1", 2);
  has(text([&] { vector.step(tensor({0, 0})); }), "call reset() before step()");
}

TEST(VectorEnvironments, EachIsAnEnvironmentOfItsOwn) {
  VectorEnv many("CartPole-v1", 3, 11), again("CartPole-v1", 3, 11);
  Tensor obs = many.reset();
  EXPECT_EQ(again.reset().to_vector<float>(), obs.to_vector<float>());
  std::vector<std::unique_ptr<Task>> alone;
  for (int64_t i = 0; i < 3; ++i) {
    alone.push_back(make_task("CartPole-v1"));
    const auto v = obs[i].to_vector<float>();
    alone.back()->set_state({v.begin(), v.end()});
  }
  int64_t steps = 0, ended = 0;
  std::set<float> starts;
  while (ended < 6) {
    const Tensor actions = tensor({steps % 2, (steps / 2) % 2, (steps / 3) % 2});
    const VectorStep step = many.step(actions);
    EXPECT_EQ(again.step(actions).obs.to_vector<float>(), step.obs.to_vector<float>());
    ++steps;
    int64_t over = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const bool end = step.terminated[i].item<bool>();
      over += end;
      const auto now = step.obs[i].to_vector<float>(), last = step.final_obs[i].to_vector<float>();
      if (end) {
        EXPECT_NE(now, last);
        EXPECT_TRUE(starts.insert(now[0]).second) << "the same start again";
      } else {
        EXPECT_EQ(now, last);
      }
    }
    EXPECT_EQ(step.episodes.size(), static_cast<size_t>(over));
    for (const Episode& e : step.episodes) EXPECT_EQ(e.reward, static_cast<double>(e.length));
    ended += over;
  }
}

TEST(VectorEnvironments, TruncatedEpisodesSaySo) {
  VectorEnv many("Pendulum-v1", 2, 3);
  many.reset();
  for (int64_t t = 1; t <= 400; ++t) {
    const VectorStep step = many.step(zeros({2, 1}));
    EXPECT_FALSE(step.terminated.any().item<bool>());
    EXPECT_EQ(step.truncated.all().item<bool>(), t % 200 == 0) << t;
    EXPECT_EQ(step.episodes.size(), t % 200 == 0 ? 2U : 0U);
  }
}

}  // namespace
}  // namespace tandem::rl
