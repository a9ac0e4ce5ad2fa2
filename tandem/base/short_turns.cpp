// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/short_turns.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace tandem {
namespace {

// `runtime`: of a turn, in nanoseconds; 0: the kernel's.
void take_turns_of(uint64_t runtime) {
  // struct sched_attr in its first form, which glibc declares from 2.41 on.
  struct {
    uint32_t size = 48;
    uint32_t policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  static_assert(sizeof attributes == 48);
  if (::sched_getscheduler(0) != SCHED_OTHER) return;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = runtime;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void take_short_turns() { take_turns_of(100000); }
void take_usual_turns() { take_turns_of(0); }

}  // namespace tandem
