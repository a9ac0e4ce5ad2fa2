// SPDX-License-Identifier: Apache-2.0
// What the verbs plan and advise share with others.
#pragma once

#include "tandem/plan/catalog.h"
#include "tandem/plan/jobs.h"

namespace tandem::cli {

/// The job of a recipe: its model and batch, with the shapes of one batch of its data.
/// `batch` hears how many samples it has.
plan::Job recipe_job(const std::string& path, int64_t* batch = nullptr);
/// What `bench --machine` measured; `file` empty: where it leaves it. Throws Io, Format.
plan::MachineProfile machine_profile_of(const std::string& file);

}  // namespace tandem::cli
