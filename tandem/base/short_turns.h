// SPDX-License-Identifier: Apache-2.0
// Threads that are woken often and work little.
#pragma once

#include "tandem/base/export.h"

namespace tandem {

/// Ask the kernel that the calling thread, and those that it starts from now on, run soon after
/// they are woken, on cores whose threads compute: they get turns of a tenth of a millisecond in
/// place of the usual ones of up to 3 ms. Their share of a core stays what it was, and so does
/// another policy than the usual one. Linux 6.12 and newer do so
/// (sched_setattr(2), `sched_runtime` of SCHED_OTHER); elsewhere it changes nothing.
TD_API void take_short_turns();
/// The kernel's usual turns again.
TD_API void take_usual_turns();

/// For the threads that this one starts while the guard lives.
class ShortTurnsGuard {
 public:
  ShortTurnsGuard() { take_short_turns(); }
  ~ShortTurnsGuard() { take_usual_turns(); }
  ShortTurnsGuard(const ShortTurnsGuard&) = delete;
  ShortTurnsGuard& operator=(const ShortTurnsGuard&) = delete;
};

}  // namespace tandem
