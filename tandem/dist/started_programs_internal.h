// SPDX-License-Identifier: Apache-2.0
// Programs that are started together and end together: the ranks of a machine, or the launchers of
// several.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/dist/launch.h"

namespace tandem::distributed {

/// What is started once: a rank, or the launcher of another machine.
struct Program {
  std::string name;    ///< "rank 3", for messages
  std::string prefix;  ///< before each line of it
  int number = 0;
  std::vector<std::string> command, env;
  std::string input;      ///< its standard input, which stays open; "": it has none
  std::vector<int> cpus;  ///< that it may run on; empty: all that this process has
};

/// Run them and wait, as launch() says, with what `options` says of notice, grace and parent.
struct ProgramsEnd {
  LaunchResult result;
  bool signalled = false;  ///< this process was asked to end
};
ProgramsEnd run_programs(const LaunchOptions& options, std::vector<Program> programs);

/// This process's environment with other values.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& set);
/// Write all of `prefix` and `line` to a descriptor, unless whoever reads it is gone.
void write_line(int to, const std::string& prefix, std::string_view line);

}  // namespace tandem::distributed
