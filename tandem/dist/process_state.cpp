// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/process_state_internal.h"

#include <fstream>
#include <sstream>
#include <string>

namespace tandem::distributed {

ProcessState process_state(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_ends = line.rfind(')');  // a program's name may hold anything
  if (name_ends == line.npos) return {};
  ProcessState s;
  pid_t parent = 0, group = 0;
  std::istringstream(line.substr(name_ends + 1)) >> s.state >> parent >> group >> s.session;
  return s;
}

}  // namespace tandem::distributed
