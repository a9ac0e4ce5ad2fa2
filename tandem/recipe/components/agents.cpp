// SPDX-License-Identifier: Apache-2.0
// `agent:` of recipes: rows of rl::agents(). The figure is the mean return of whole episodes that
// the trained policy has not seen. With `eval_every` the policy is tried on other episodes during
// the run and the best one is kept (Stable-Baselines3's EvalCallback).
#include "tandem/rl/agents.h"
#include "tandem/recipe/agent_run_internal.h"
#include "tandem/recipe/components/components_internal.h"
#include "tandem/recipe/fields.h"

namespace tandem::recipe {

const FieldsType& agent_fields() { return kFieldsType<AgentRunOptions>; }

void add_agent_components(Registry& r) {
  for (const rl::AgentRow* row : rl::agents().rows())
    r.agent[row->name] = [row](Options& o, const RecipeContext& c) {
      AgentRunOptions run;
      read_fields(o, run);
      const std::shared_ptr<void> options = row->options->make();
      read_fields(o, {options.get(), row->options});
      o.finish();
      const std::unique_ptr<rl::Agent> agent = row->make(run.env, options.get(), c.seed);
      return run_agent(*agent, run, c);
    };
}

}  // namespace tandem::recipe
