// SPDX-License-Identifier: Apache-2.0
// A run of an agent as recipes have it: the policy tried during the run and the best one kept,
// checkpoints with exact resume, the run's folder, and the judgement at the end.
#pragma once

#include "tandem/rl/agent.h"
#include "tandem/train/recipe.h"

namespace tandem::cli {

struct AgentRunOptions {
  std::string env;
  int64_t steps = 0;            ///< of all environments together
  int64_t eval_episodes = 100;  ///< of the judgement
  int64_t eval_every = 0;       ///< steps between trials of the policy; 0: none
  int64_t eval_tries = 20;      ///< episodes of a trial
  int64_t save_every = 10'000;  ///< steps between checkpoints; 0: at the end and at a stop only
  int64_t keep = 3;             ///< checkpoints that stay
  train::PreemptOptions preempt = {};
};
/// The keys of `agent:` that are the run's own.
AgentRunOptions agent_run_options(train::Options& o);

/// Train, or go on where the folder's newest whole checkpoint stands; judge; leave the folder's
/// files. Throws Value when the folder holds a run of another agent.
train::RecipeRun run_agent(rl::Agent& agent, const AgentRunOptions& options,
                           const train::RecipeContext& context);

}  // namespace tandem::cli
