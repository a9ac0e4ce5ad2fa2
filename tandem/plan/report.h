// SPDX-License-Identifier: Apache-2.0
// The plan as one self-contained HTML page.
#pragma once

#include "tandem/plan/plan.h"

namespace tandem::plan {

/// Memory over the step, stacked by category; where memory and time go; cost against time of all
/// known servers with the front; how the answer changes with the batch; every figure with its
/// reasons. No other file is needed to show it.
TD_API std::string html_report(const Plan& p, const std::vector<Ranked>& servers,
                               const PlanRequest& r);

}  // namespace tandem::plan
