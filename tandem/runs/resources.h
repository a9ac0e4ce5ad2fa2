// SPDX-License-Identifier: Apache-2.0
// What a run costs: processor time, memory and energy of this process, and which process it is.
// Energy is read from the processor's own counters (RAPL) where the system lets us, else modelled
// from processor time and called so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem::runs {

/// Seconds that all threads of this process have computed, in user and system mode.
TD_API double process_seconds();
/// Bytes of this process in memory, now and at most; 0 where the system does not say.
TD_API int64_t resident_bytes();
TD_API int64_t peak_resident_bytes();

/// What no other process is called, though numbers of processes return: the start of the system and
/// the time of the process's own since then; "ended" of one that has ended and was not waited for.
/// "" where there is no such process, or where it cannot be seen.
TD_API std::string process_identity(int64_t pid);

struct EnergyOptions {
  /// Where Linux keeps its power counters.
  std::string counters = "/sys/class/powercap";
  /// For the model: what a busy core draws more than an idle one, and its share of the rest.
  double watts_per_core = 10;
};
struct Energy {
  double joules = 0;
  bool measured = false;  ///< by counters: of the whole package, other processes included
  std::string source;     ///< "RAPL, 2 packages" or "modelled: ..."
};

/// Energy since it was made.
class TD_API EnergyMeter {
 public:
  explicit EnergyMeter(EnergyOptions options = {});
  Energy read();

 private:
  struct Package {
    std::string file;
    double last = 0, range = 0, sum = 0;  ///< microjoules; the counter wraps at `range`
  };
  EnergyOptions o_;
  std::vector<Package> packages_;
  double cpu_start_ = 0;
};

}  // namespace tandem::runs
