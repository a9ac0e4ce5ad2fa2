// SPDX-License-Identifier: Apache-2.0
// What the system says about a running process: processor time of its data threads and of all,
// how long they waited for a processor, bytes that came from files and from the network, and the
// limits that it runs under. `tandem advise` reads these figures in a run's log.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include "tandem/base/export.h"

namespace tandem::runs {

/// Per second, over a stretch of time; 0 where the system does not say.
struct PressureFigures {
  double cores = 0;           ///< processor seconds of all threads
  double queued = 0;          ///< seconds that the calling thread was ready and had no processor
  double loader_cores = 0;    ///< processor seconds of the data threads ("td-data")
  double loader_queued = 0;   ///< seconds that they were ready and had no processor
  double loader_blocked = 0;  ///< seconds that they waited for something else, at work or idle
  double read = 0;            ///< bytes by read calls, or from disks where that is more
  double received = 0;        ///< bytes from the network (of the whole machine's name space)
  double memory_stall = 0;    ///< share of the time that waited for memory (PSI)
  // now
  int loaders = 0;          ///< data threads
  int cores_allowed = 0;    ///< processors that the process may use
  double memory_share = 0;  ///< of what it may have: RAM, its control group's, RLIMIT_AS, _DATA
};

/// Reads the system's counters; figures are since the last read (or since it was made).
class TD_API PressureMeter {
 public:
  PressureMeter();
  PressureFigures read();

 private:
  struct Thread {
    double run = 0, queued = 0;
  };
  struct Counters {
    double cpu = 0, read = 0, received = 0, memory = 0;
    Thread own;
    std::map<int64_t, Thread> loaders;
  };
  static Counters now();
  Counters last_;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace tandem::runs
