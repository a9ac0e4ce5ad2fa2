// SPDX-License-Identifier: Apache-2.0
// All headers of rl.
#pragma once

#include "tandem/rl/agent.h"
#include "tandem/rl/agents.h"
#include "tandem/rl/buffers.h"
#include "tandem/rl/dqn.h"
#include "tandem/rl/env.h"
#include "tandem/rl/on_policy.h"
#include "tandem/rl/sac.h"
