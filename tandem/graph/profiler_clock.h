// SPDX-License-Identifier: Apache-2.0
// Which clock the profiler reads. A machine that others use too takes time away from a program;
// the processor time of one thread hardly knows of them.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// While it lives, profilers of this thread count its processor time in place of the time that
/// passes. For programs of one thread: what other threads do is not counted.
class TD_API ProcessorTimeGuard {
 public:
  explicit ProcessorTimeGuard(bool on = true);
  ~ProcessorTimeGuard();
  ProcessorTimeGuard(const ProcessorTimeGuard&) = delete;
  ProcessorTimeGuard& operator=(const ProcessorTimeGuard&) = delete;

 private:
  bool outer_;
};

/// Seconds by the profiler's clock, from any beginning.
TD_API double profiler_seconds();

}  // namespace tandem
