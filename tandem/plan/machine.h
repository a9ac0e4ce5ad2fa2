// SPDX-License-Identifier: Apache-2.0
// Calibration: what this machine reaches, kernel by kernel, and what a step then takes on it.
#pragma once

#include <functional>

#include "tandem/plan/catalog.h"
#include "tandem/plan/plan.h"
#include "tandem/plan/quantity.h"

namespace tandem::plan {

/// Measure the machine, about two minutes: products, bandwidth, overheads, disk, decoding, a
/// loop-back connection, and ladders of layers whose kernels become points of the profile.
/// `progress` hears what is measured; it returns false to stop early.
TD_API MachineProfile measure_machine(const std::function<bool(const std::string&)>& progress = {});

/// Seconds of one kernel on that machine: interpolated between measured points of its kind, by
/// roofline where there are none.
TD_API double kernel_seconds(const Work& k, const MachineProfile& m, bool compiled);
/// Seconds of one step, as a sum over kinds of kernels.
TD_API Quantity machine_step(const Workload& w, const MachineProfile& m);

/// A plan for the machine itself: memory as its allocator counts it, time from its profile.
TD_API Plan machine_plan(const PlanRequest& r, const MachineProfile& m);

/// 40 configurations of four families: predicted and measured seconds of a step.
struct TimeCheck {
  std::string name;
  double planned = 0, measured = 0;
};
TD_API std::vector<TimeCheck> check_times(
    const MachineProfile& m, const std::function<bool(const std::string&)>& progress = {});

}  // namespace tandem::plan
