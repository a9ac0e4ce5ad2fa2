// SPDX-License-Identifier: Apache-2.0
#include "tandem/rl/agents.h"

#include "tandem/rl/dqn.h"
#include "tandem/rl/on_policy.h"
#include "tandem/rl/sac.h"

namespace tandem::rl {
namespace {

constexpr AgentRow kAgents[] = {
    agent_row<DQN, DQNOptions>("dqn",
                               "Deep Q-learning (Mnih et al. 2015), for actions that are choices.",
                               "{type: dqn, env: CartPole-v1, steps: 400, net_arch: [16]}"),
    agent_row<A2C, A2COptions>("a2c", "Advantage actor-critic (Mnih et al. 2016).",
                               "{type: a2c, env: CartPole-v1, steps: 400, net_arch: [16]}"),
    agent_row<PPO, PPOOptions>(
        "ppo", "Proximal policy optimisation (Schulman et al. 2017).",
        "{type: ppo, env: CartPole-v1, steps: 256, n_steps: 64, n_epochs: 2, net_arch: [16]}"),
    agent_row<SAC, SACOptions>(
        "sac", "Soft actor-critic (Haarnoja et al. 2018), for actions that are numbers.",
        "{type: sac, env: Pendulum-v1, steps: 150, batch_size: 32, net_arch: [16]}"),
};

}  // namespace

Registry<AgentRow>& agents() {
  static Registry<AgentRow> all("agent", std::span<const AgentRow>(kAgents));
  return all;
}

}  // namespace tandem::rl
