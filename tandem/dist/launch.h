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
  int max_restarts = 0;     ///< restart all ranks up to this many times after one fails
  /// Restart with one rank fewer each time, down to this many; 0: always with as many as before.
  int min_ranks = 0;
};

struct LaunchResult {
  int code = 0;           ///< of the rank that failed first; 128 + signal where one ended it
  int failed = -1;        ///< that rank
  std::string text = "";  ///< what became of it, in a sentence
  int restarts = 0;       ///< how many times all ranks were restarted
  int ranks = 0;          ///< how many there were at the end
};
/// How many times the ranks of this process's job have been restarted, as the launcher says; 0
/// without one.
TD_API int restart_count();
/// The job's name, the same for all its ranks and after restarts (TORCHELASTIC_RUN_ID); "" without
/// a launcher.
TD_API std::string job_id();

/// Run the command once per rank and wait. SIGINT, SIGTERM and SIGHUP are passed on to all ranks,
/// which then have `notice` + `grace` seconds; a second signal kills them. Where restarts are
/// left, a rank that fails ends all and the command runs again, as a program that resumes from its
/// newest checkpoint expects; not after a signal to this process, nor after exit code 2, a wrong
/// command line. No process of a rank's group outlives this call, and none this process. Throws
/// Value for a bad option, Io for a program that cannot be started.
TD_API LaunchResult launch(const LaunchOptions& options);

}  // namespace tandem::distributed
