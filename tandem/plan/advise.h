// SPDX-License-Identifier: Apache-2.0
// What holds a run back, from its own log and the machine's profile, and what an upgrade would
// gain.
#pragma once

#include "tandem/plan/hardware/machine.h"

namespace tandem::plan {

/// What a run says about itself (metrics.jsonl, keys system/...), means of its later half. Figures
/// of threads are seconds per second; those of data threads are sums over them.
struct RunFacts {
  double samples_per_second = 0;
  double waiting = 0;             ///< share of the time that waited for data, 0 .. 1
  double resident_bytes = 0;      ///< most
  double queued = 0;              ///< the training thread was ready and had no processor
  double loaders = 0;             ///< data threads
  double loader_busy = 0;         ///< they were at work, whatever held them
  double loader_cores = 0;        ///< ... computing
  double loader_queued = 0;       ///< ... ready, without a processor
  double read = 0, received = 0;  ///< bytes per second from files and from the network
  double memory_share = 0;        ///< of what the process may have, most
  double memory_stall = 0;        ///< share of the time that waited for memory
};
/// Read the log of a run's folder. Throws Io, Format, and Value for one without such lines.
TD_API RunFacts run_facts(const std::string& folder);

enum class Limit : uint8_t { arithmetic, bandwidth, launch, decode, disk, link, cores, memory };
TD_API const char* to_string(Limit l);

struct Advice {
  Limit limit = Limit::arithmetic;
  double share = 0;     ///< of the run's time
  double gain = 1;      ///< samples per second after the upgrade over those before it
  std::string upgrade;  ///< "a faster disk, or data that fits into RAM"
  std::string text;
  Quantity time;  ///< of a step, by what limits each part
};
/// `w`: the run's step by dry run for this machine; `larger`: the same with a batch that is larger,
/// for what tiny kernels lose (nullptr: the overhead is taken to go away). The upgrades: arithmetic
/// or bandwidth twice as fast, kernels as large as `larger`'s, half the decoding, no waiting for
/// disk or link, a core for each thread, memory without stalls. Loading runs beside the training
/// as it did, so what loads next slowest bounds each gain.
TD_API Advice advise(const RunFacts& run, const Workload& w, const MachineProfile& m,
                     const Workload* larger = nullptr);

}  // namespace tandem::plan
