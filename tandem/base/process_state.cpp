// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/process_state.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tandem {

ProcessState process_state(int64_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  // "pid (name) state parent group session ...": a name may hold anything, so what follows its last
  // bracket is counted. The start is field 22 of all, 20 of these.
  const size_t name_ends = line.rfind(')');
  if (name_ends == line.npos) return {};
  std::istringstream fields(line.substr(name_ends + 1));
  ProcessState s;
  int64_t parent = 0, group = 0;
  fields >> s.state >> parent >> group >> s.session;
  for (int k = 5; k <= 20; ++k) fields >> s.start;
  return fields ? s : ProcessState{};
}

std::string path_of_link(const char* link) {
  char path[4096];
  const ssize_t n = ::readlink(link, path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
}

}  // namespace tandem
