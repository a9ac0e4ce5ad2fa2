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
  /// Seconds of a hop from one GPU to the next within a server and between servers, and of a call,
  /// whatever its size: those by which NCCL chooses its algorithms (src/graph/tuning.cc, commit
  /// 01afd20a77b5, large messages). Gathers and scatters of n ranks go around a ring of n - 1 hops;
  /// sums may also go up and down a tree over the servers.
  double near_hop = 3.4e-6, far_hop = 9.6e-6, call = 8.4e-6;
  bool trees = true;  ///< NCCL has them since its version 2.4 (2019)
  /// Gradients are copied into the buffers that are summed, and back (Horovod's tensor fusion).
  bool copied = false;
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
