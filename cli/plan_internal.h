// SPDX-License-Identifier: Apache-2.0
// What the verbs plan and advise share with others.
#pragma once

#include "tandem/plan/hardware/catalog.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan.h"

namespace tandem::cli {

/// A recipe as it stands: its model and loss on the shapes of one batch of its data, its batch,
/// optimizer, precision, mode, accumulation and clipping, its data and epochs.
plan::PlanRequest recipe_request(const std::string& path);
/// What `bench --machine` measured; `file` empty: where it leaves it. Throws Io, Format.
plan::MachineProfile machine_profile_of(const std::string& file);

}  // namespace tandem::cli
