// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process of this machine.
#pragma once

#include <sys/types.h>

namespace tandem::distributed {

struct ProcessState {
  char state = 0;     ///< R, S, D, T (stopped), t (by a debugger), Z (ended) ...; 0: there is none
  pid_t session = 0;  ///< the process that began its session
  bool lives() const { return state != 0 && state != 'Z' && state != 'X'; }
  bool stopped() const { return state == 'T' || state == 't'; }
};
ProcessState process_state(pid_t pid);

}  // namespace tandem::distributed
