// SPDX-License-Identifier: Apache-2.0
// Selects the profiler's clock. On a shared machine other programs take time away; the processor
// time of one thread is hardly affected by them.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// While it lives, profilers of this thread measure its processor time instead of elapsed time. For
/// single-threaded programs: the work of other threads is not counted.
class TD_API ProcessorTimeGuard {
 public:
  explicit ProcessorTimeGuard(bool on = true);
  ~ProcessorTimeGuard();
  ProcessorTimeGuard(const ProcessorTimeGuard&) = delete;
  ProcessorTimeGuard& operator=(const ProcessorTimeGuard&) = delete;

 private:
  bool outer_;
};

/// Seconds by the profiler's clock, from an arbitrary start.
TD_API double profiler_seconds();

}  // namespace tandem
