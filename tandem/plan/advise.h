// SPDX-License-Identifier: Apache-2.0
// What holds a run back, from its own log and the machine's profile, and what an upgrade would
// gain.
#pragma once

#include "tandem/plan/machine.h"

namespace tandem::plan {

/// What a run says about itself (metrics.jsonl, keys system/...), means of its later half.
struct RunFacts {
  double samples_per_second = 0;
  double waiting = 0;         ///< share of the time that waited for data, 0 .. 1
  double resident_bytes = 0;  ///< most
};
/// Read the log of a run's folder. Throws Io, Format, and Value for one without such lines.
TD_API RunFacts run_facts(const std::string& folder);

enum class Limit : uint8_t { arithmetic, bandwidth, launch, decode, disk, memory };
TD_API const char* to_string(Limit l);

struct Advice {
  Limit limit = Limit::arithmetic;
  double share = 0;  ///< of the run's time
  double gain = 1;   ///< how much faster with twice of what limits (no waiting, no overhead)
  std::string text;
  Quantity time;  ///< of a step, by what limits each part
};
/// `w`: the run's step by dry run for this machine.
TD_API Advice advise(const RunFacts& run, const Workload& w, const MachineProfile& m,
                     double sample_bytes);

}  // namespace tandem::plan
