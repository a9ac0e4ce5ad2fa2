// SPDX-License-Identifier: Apache-2.0
// An agent's run as recipes have it: the policy is tried during the run and the best one kept;
// checkpoints with exact resume, the run's folder, and the evaluation at the end.
#pragma once

#include "tandem/recipe/recipe.h"
#include "tandem/rl/agent.h"

namespace tandem::recipe {

/// The keys of `agent:` that are the run's own.
struct AgentRunOptions {
  std::string env = {};
  int64_t steps = 0;
  int64_t eval_episodes = 100;
  int64_t eval_every = 0;
  int64_t eval_tries = 20;
  int64_t save_every = 10'000;
  int64_t keep = 3;
  train::PreemptOptions preempt = {};

  template <class V>
  void fields(V& v) {
    v("env", env, {.doc = "the environment, such as CartPole-v1", .required = true});
    v("steps", steps,
      {.doc = "of all environments together", .at_least = 1, .required = true, .resumable = true});
    v("eval_episodes", eval_episodes,
      {.doc = "episodes of the evaluation", .at_least = 1, .resumable = true});
    v("eval_every", eval_every,
      {.doc = "steps between trials of the policy, of which the best is kept; 0: none",
       .at_least = 0,
       .resumable = true});
    v("eval_tries", eval_tries, {.doc = "episodes of a trial", .at_least = 1, .resumable = true});
    v("save_every", save_every,
      {.doc = "steps between checkpoints; 0: at the end and at a stop only",
       .at_least = 0,
       .resumable = true});
    v("keep", keep, {.doc = "newest checkpoints that stay", .at_least = 1, .resumable = true});
    preempt.fields(v);
  }
};

/// Train, or resume from the folder's newest whole checkpoint; evaluate; write the run's files.
/// Throws Value when the folder holds a run of another agent.
RecipeRun run_agent(rl::Agent& agent, const AgentRunOptions& options, const RecipeContext& context);

}  // namespace tandem::recipe
