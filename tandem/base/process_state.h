// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process of this machine.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/export.h"

namespace tandem {

struct ProcessState {
  char state = 0;  ///< R, S, D, T (stopped), t (by a debugger), Z (ended) ...; 0: there is none
  int64_t session = 0;  ///< the process that began its session
  std::string start;    ///< when it began, in ticks since the machine did
  bool lives() const { return state != 0 && state != 'Z' && state != 'X'; }
  bool stopped() const { return state == 'T' || state == 't'; }
};
TD_API ProcessState process_state(int64_t pid);
/// The file that a link of /proc/self names: "/proc/self/exe", "/proc/self/cwd"; "" for none.
TD_API std::string path_of_link(const char* link);

}  // namespace tandem
