// SPDX-License-Identifier: Apache-2.0
// The parts that a plan is put together from. Not installed.
#pragma once

#include "tandem/plan/plan.h"

namespace tandem::plan {

/// A dry run for a device that has a kernel for every row.
Workload workload_for(const PlanRequest& r, int64_t per_gpu, bool compiled, bool training);
void check_request(const PlanRequest& r, const Catalog& catalog);
Quantity price_hour(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n);
/// What recompute, narrower numbers, 8-bit state and sharding would save.
void add_savings(Plan& p, const PlanRequest& r, const Workload& w);
/// Bytes and cores that keep the GPUs busy.
void add_data(Plan& p, const PlanRequest& r, const Catalog& c, double rate, double units);
void add_checkpoints(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                     double seconds);
void add_energy_and_cost(Plan& p, const PlanRequest& r, const Catalog& c, double seconds);
void add_server(Plan& p, const PlanRequest& r, const Catalog& c);

/// Share of its board power that a GPU draws while it trains, and of the host beside it.
inline constexpr double kPowerShare = 0.8, kHostShare = 0.2;

}  // namespace tandem::plan
