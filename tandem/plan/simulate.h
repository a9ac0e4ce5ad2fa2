// SPDX-License-Identifier: Apache-2.0
// A job of many GPUs, simulated event by event: the compute stream and the link of a GPU with the
// buckets that training makes, pipelines by the list of passes that ranks run, ranks that are late,
// failures and checkpoints. Kernels and rates are the plan's.
#pragma once

#include "tandem/plan/plan.h"

namespace tandem::plan {

struct SimulationOptions {
  /// A rank's time for a step is spread by this much (standard deviation of its logarithm).
  double late = 0.01;
  /// Seconds that a message takes whatever its size; a collective of n ranks has log2(n) of them.
  double latency = 10e-6;
  int steps = 50;           ///< that are drawn
  double restart = 300;     ///< seconds from a failure to the first step after it
  double write_rate = 1e9;  ///< bytes a second of one GPU's part of a checkpoint
  uint64_t seed = 1;
};

struct Simulation {
  int n = 1;
  double compute = 0;  ///< seconds of a step without exchange, pauses and late ranks
  double step = 0;     ///< mean of the steps drawn
  double exposed = 0;  ///< of a step in which nobody is late: waiting for the link
  double pauses = 0;   ///< likewise: of a pipeline
  double late = 0;     ///< waiting for the slowest
  double rate = 0;     ///< units a second of all GPUs
  double failures_day = 0;
  double save = 0, interval = 0;  ///< seconds of a checkpoint, and between them
  double goodput = 0;             ///< share of the time that counts
};

/// `w`: of one batch of one GPU (or of those that share a net), as for step_time().
TD_API Simulation simulate(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n,
                           const SimulationOptions& options = {});

}  // namespace tandem::plan
