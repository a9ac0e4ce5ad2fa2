// SPDX-License-Identifier: Apache-2.0
// Starting the ranks of a job, on this machine or on several: torchrun's variables, output with the
// rank before each line, all ended when one fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::distributed {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command = {};  ///< program and arguments
  int port = 0;                           ///< MASTER_PORT; 0: a free one
  int threads = 0;  ///< TANDEM_NUM_THREADS of a rank where it is not set; 0: an equal share
  /// What each of several ranks may run on, with all its threads: "core": its share of the
  /// processors that this process may use; "numa": the NUMA nodes of that share; "none": all. Where
  /// ranks have more threads than there are processors, nothing is bound.
  std::string bind_to = "core";
  double notice = 2;   ///< seconds in which the others end by themselves when a rank has failed
  double grace = 5;    ///< seconds between SIGTERM, which comes then, and SIGKILL
  bool prefix = true;  ///< "[1] " before each line of rank 1
  std::string engine = "";  ///< TANDEM_DIST_ENGINE of the ranks; "": as it is set
  int max_restarts = 0;     ///< restart all ranks up to this many times after one fails
  /// Restart with one rank fewer each time, down to this many; 0: always with as many as before.
  int min_ranks = 0;

  // ---- of several machines, each of which starts its own ranks
  int world = 0;            ///< ranks of all machines; 0: those of this one
  int first = 0;            ///< number of this machine's first rank
  int node = 0;             ///< number of this machine
  std::string master = "";  ///< address of rank 0's machine, where it listens on `port`; "": here
  std::string token = "";  ///< known to all machines; "": TANDEM_TOKEN, or a new one on one machine
  int parent = -1;         ///< a descriptor; when its other side is closed, all ranks end
};

struct LaunchResult {
  int code = 0;           ///< of the rank that failed first; 128 + signal where one ended it
  int failed = -1;        ///< that rank
  std::string text = "";  ///< what became of it, in a sentence
  int restarts = 0;       ///< how many times all ranks were restarted
  int ranks = 0;          ///< how many there were at the end
};
/// A machine, and how many ranks it has.
struct LaunchHost {
  std::string name;
  int ranks = 1;
};
/// "a:8,b:8"; without a number: `ranks`. Throws Value for what cannot be read.
TD_API std::vector<LaunchHost> launch_hosts(const std::string& text, int ranks);
struct HostsOptions {
  /// What runs a line of shell on a machine: its words, the machine's name, the line.
  std::string shell = "ssh -o BatchMode=yes";
  std::string tool = "";    ///< `tandem` there; "": this program's path
  std::string folder = "";  ///< where the command runs; "": the current one's path
};
/// Run the command on several machines, as many times on each as it has ranks: `tandem launch` is
/// started on each by `shell`, learns the job's token from its standard input, and ends its ranks
/// when that is closed. Rank 0 is on the first machine, whose name must be an address for the
/// others (or options.master). Otherwise as launch(), of which this is the one on each machine.
TD_API LaunchResult launch_on_hosts(const std::vector<LaunchHost>& hosts,
                                    const LaunchOptions& options, const HostsOptions& how = {});

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
/// command line. No process of a rank's session outlives this call, and none this process. Throws
/// Value for a bad option, Io for a program that cannot be started.
TD_API LaunchResult launch(const LaunchOptions& options);

/// For programs that are started by hand and are to run on several ranks: where no launcher has
/// started this process, launch() its own command line, `options.ranks` times, and give how that
/// went; main() then ends. Nothing in a rank of a job, and for one rank, which continue. Call it
/// before anything else: what this process has done by then is done again by each rank.
/// `if (const auto r = launch_self({.ranks = 4})) return r->code;`
/// Where TF_CONFIG counts machines, each of them has `ranks` ranks. Errors as of launch() and
/// find_place().
TD_API std::optional<LaunchResult> launch_self(LaunchOptions options);

}  // namespace tandem::distributed
