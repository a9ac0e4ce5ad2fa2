// SPDX-License-Identifier: Apache-2.0
// Trains the agents of tandem/rl on classic control tasks and prints the return of 100 episodes of
// the deterministic policy, per seed. Usage: bench_rl [CASE [SEEDS [compile|eager]]]
// Without a case it lists them. The numbers in docs/rl.md come from here.
#include <tandem/tandem.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace {

using namespace tandem;

struct Case {
  const char* name;
  const char* env;
  int64_t steps;
  double goal;  // mean return of 100 episodes
  std::unique_ptr<rl::Agent> (*make)(const char* env, uint64_t seed, bool compile);
};

const Case kCases[] = {
    {"cartpole-dqn", "CartPole-v1", 50'000, 475,
     [](const char* env, uint64_t seed, bool compile) -> std::unique_ptr<rl::Agent> {
       return std::make_unique<rl::DQN>(env, rl::DQNOptions{.learning_rate = 2.3e-3,
                                                            .buffer_size = 100'000,
                                                            .learning_starts = 1000,
                                                            .batch_size = 64,
                                                            .gamma = 0.99,
                                                            .train_freq = 256,
                                                            .gradient_steps = 128,
                                                            .target_update_interval = 10,
                                                            .exploration_fraction = 0.16,
                                                            .exploration_final_eps = 0.04,
                                                            .linear_schedule = true,
                                                            .net_arch = {256, 256},
                                                            .seed = seed,
                                                            .compile = compile});
     }},
    {"cartpole-ppo", "CartPole-v1", 100'000, 475,
     [](const char* env, uint64_t seed, bool compile) -> std::unique_ptr<rl::Agent> {
       return std::make_unique<rl::PPO>(env, rl::PPOOptions{.learning_rate = 1e-3,
                                                            .n_envs = 8,
                                                            .n_steps = 32,
                                                            .batch_size = 256,
                                                            .n_epochs = 20,
                                                            .gamma = 0.98,
                                                            .gae_lambda = 0.8,
                                                            .linear_schedule = true,
                                                            .seed = seed,
                                                            .compile = compile});
     }},
    {"cartpole-a2c", "CartPole-v1", 500'000, 475,
     [](const char* env, uint64_t seed, bool compile) -> std::unique_ptr<rl::Agent> {
       return std::make_unique<rl::A2C>(
           env,
           rl::A2COptions{.n_envs = 8, .linear_schedule = true, .seed = seed, .compile = compile});
     }},
    {"pendulum-ppo", "Pendulum-v1", 100'000, -200,
     [](const char* env, uint64_t seed, bool compile) -> std::unique_ptr<rl::Agent> {
       return std::make_unique<rl::PPO>(env, rl::PPOOptions{.learning_rate = 1e-3,
                                                            .n_envs = 4,
                                                            .n_steps = 1024,
                                                            .batch_size = 64,
                                                            .n_epochs = 10,
                                                            .gamma = 0.9,
                                                            .seed = seed,
                                                            .compile = compile});
     }},
    {"pendulum-sac", "Pendulum-v1", 20'000, -200,
     [](const char* env, uint64_t seed, bool compile) -> std::unique_ptr<rl::Agent> {
       return std::make_unique<rl::SAC>(env, rl::SACOptions{.learning_rate = 1e-3,
                                                            .buffer_size = 20'000,
                                                            .net_arch = {64, 64},
                                                            .seed = seed,
                                                            .compile = compile});
     }},
};

}  // namespace

int main(int argc, char** argv) {
  init();
  const int64_t seeds = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 3;
  const bool compiled = argc < 4 || std::strcmp(argv[3], "eager") != 0;
  for (const Case& c : kCases) {
    if (argc < 2) print("{}  {}, {} steps\n", c.name, c.env, c.steps);
    if (argc < 2 || std::strcmp(argv[1], c.name) != 0) continue;
    double sum = 0, lowest = 1e300;
    for (int64_t seed = 0; seed < seeds; ++seed) {
      const auto begin = std::chrono::steady_clock::now();
      auto agent = c.make(c.env, static_cast<uint64_t>(seed), compiled);
      agent->learn(c.steps);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      const rl::Evaluation e = rl::evaluate_policy(*agent, c.env, 100);
      print("{} seed {}: {:.1f} +- {:.1f} over 100 episodes, {} steps in {:.1f} s\n", c.name, seed,
            e.mean_reward, e.std_reward, agent->progress().steps, took.count());
      std::fflush(stdout);
      sum += e.mean_reward;
      lowest = std::min(lowest, e.mean_reward);
    }
    print("{}: mean {:.1f}, lowest {:.1f}, wanted {:.0f}: {}\n", c.name,
          sum / static_cast<double>(seeds), lowest, c.goal, lowest >= c.goal ? "met" : "not met");
  }
  return 0;
}
