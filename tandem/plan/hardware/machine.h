// SPDX-License-Identifier: Apache-2.0
// Calibration: what this machine reaches, kernel by kernel, and what a step then takes on it.
#pragma once

#include <functional>

#include "tandem/plan/hardware/catalog.h"
#include "tandem/plan/plan.h"
#include "tandem/plan/quantity.h"

namespace tandem::plan {

/// Measure the machine, about two minutes: matmuls, bandwidth, overheads, disk, decoding, a
/// loop-back connection, and ladders of layers whose kernels become points of the profile. All
/// times are the shortest of several; with one thread they are processor time. `progress` hears
/// what is measured; it returns false to stop early.
TD_API MachineProfile measure_machine(const std::function<bool(const std::string&)>& progress = {});

/// What a kernel's points are kept under: mode, phase, dtype and row (depthwise convolutions have
/// kernels of their own).
TD_API std::string point_kind(const Work& k, bool compiled);
/// Seconds of one kernel on that machine: interpolated between measured points of its kind, by
/// roofline where there are none.
TD_API double kernel_seconds(const Work& k, const MachineProfile& m, bool compiled);
/// Seconds of one step, as a sum over kinds of kernels.
TD_API Quantity machine_step(const Workload& w, const MachineProfile& m);

/// A plan for the machine itself: memory as its allocator counts it, time from its profile.
TD_API Plan machine_plan(const PlanRequest& r, const MachineProfile& m);

/// One figure of the profile beside what the hardware should give.
struct MachineLine {
  std::string what, measured, expected;
  bool ok = true;
  std::string advice;  ///< where it is not
};
/// The profile evaluated: by the data sheet where the processor is one of data/hardware.json, else
/// by its clock and instruction sets; disks by their kinds there.
TD_API std::vector<MachineLine> evaluate_machine(const MachineProfile& m, const Catalog& catalog);

/// 40 configurations of four families: predicted and measured seconds of a step.
struct TimeCheck {
  std::string name;
  double planned = 0, measured = 0;
};
TD_API std::vector<TimeCheck> check_times(
    const MachineProfile& m, const std::function<bool(const std::string&)>& progress = {});

}  // namespace tandem::plan
