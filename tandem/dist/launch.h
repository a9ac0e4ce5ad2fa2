// SPDX-License-Identifier: Apache-2.0
// Starting the ranks of a job on this machine: torchrun's variables, output with the rank before
// each line, all ended when one fails.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::distributed {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command = {};  ///< program and arguments
  int port = 0;                           ///< MASTER_PORT; 0: a free one
  int threads = 0;     ///< TANDEM_NUM_THREADS of a rank where it is not set; 0: an equal share
  double notice = 2;   ///< seconds in which the others end by themselves when a rank has failed
  double grace = 5;    ///< seconds between SIGTERM, which comes then, and SIGKILL
  bool prefix = true;  ///< "[1] " before each line of rank 1
  std::string engine = "";  ///< TANDEM_DIST_ENGINE of the ranks; "": as it is set
};

struct LaunchResult {
  int code = 0;           ///< of the rank that failed first; 128 + signal where one ended it
  int failed = -1;        ///< that rank
  std::string text = "";  ///< what became of it, in a sentence
};

/// Run the command once per rank and wait. SIGINT, SIGTERM and SIGHUP are passed on to all ranks,
/// which then have `notice` + `grace` seconds; a second signal kills them. No process of a rank's
/// group outlives this call, and none this process. Throws Value for a bad option, Io for a program
/// that cannot be started.
TD_API LaunchResult launch(const LaunchOptions& options);

}  // namespace tandem::distributed
