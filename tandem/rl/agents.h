// SPDX-License-Identifier: Apache-2.0
// The agents by name, each with the fields of its options and an example that runs: recipes
// (`agent:`), the reference page and programs that make an agent by name read these rows.
#pragma once

#include <memory>

#include "tandem/base/registry.h"
#include "tandem/rl/agent.h"

namespace tandem::rl {

/// A row of agents().
struct AgentRow : Component {
  /// For an environment, from the row's options. Throws what the agent's constructor throws.
  std::unique_ptr<Agent> (*make)(std::string_view env, const void* options, uint64_t seed);
};

/// A row of agent A with options O, whose `seed` is not a field.
template <class A, class O>
constexpr AgentRow agent_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<O>},
          [](std::string_view env, const void* options, uint64_t seed) -> std::unique_ptr<Agent> {
            O o = *static_cast<const O*>(options);
            o.seed = seed;
            return std::make_unique<A>(env, o);
          }};
}

/// Every agent; a program may add its own.
TD_API Registry<AgentRow>& agents();

}  // namespace tandem::rl
